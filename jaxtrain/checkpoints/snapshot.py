"""Copying of a state to host memory, before the next training step.

The next step reuses the memory of the state's arrays (buffer donation). Only copying
blocks training: the rest of a save uses the copy, in the background.
"""

from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, SingleDeviceSharding

# JAX's memory kind for host memory.
_HOST = "pinned_host"


def take(state: Any) -> Any:
    """Copy the arrays or shards that this process writes.

    Returns:
      Tree like `state`. Arrays that are sharded over several processes are JAX arrays
      in host memory. All other arrays are NumPy arrays in process 0, and None in the
      other processes.
    """
    for x in jax.tree.leaves(state):
        if _is_whole(x) and jax.process_index() == 0:
            x.copy_to_host_async()
    copied = jax.tree.map(_copy, state)
    arrays = [x for x in jax.tree.leaves(copied) if isinstance(x, jax.Array)]
    jax.block_until_ready(arrays)
    return copied


def _is_whole(x: jax.Array) -> bool:
    return x.is_fully_addressable or x.is_fully_replicated


def _copy(x: jax.Array) -> np.ndarray | jax.Array | None:
    # Process 0 needs all arrays, as it also writes their metadata.
    if jax.process_index() != 0 and (_is_whole(x) or not _is_written_here(x)):
        return None
    if not _is_whole(x):
        return _to_host(x)
    host = np.asarray(x)
    # On CPU, np.asarray may return a view of the JAX array.
    return host if host.flags.owndata else host.copy()


def _is_written_here(x: jax.Array) -> bool:
    return any(shard.replica_id == 0 for shard in x.addressable_shards)


def _to_host(x: jax.Array) -> jax.Array:
    """Start copying the local shards to host memory, device by device."""
    assert isinstance(x.sharding, NamedSharding)
    shards = [
        jax.device_put(
            shard.data, SingleDeviceSharding(shard.device, memory_kind=_HOST)
        )
        for shard in x.addressable_shards
    ]
    sharding = x.sharding.with_memory_kind(_HOST)
    return jax.make_array_from_single_device_arrays(x.shape, sharding, shards)
