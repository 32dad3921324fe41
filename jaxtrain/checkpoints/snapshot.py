"""Copy of a state in host memory, the only part of a save that blocks training.

The next step reuses the memory of the state's arrays (buffer donation). The rest of the
save uses the copy, in the background.
"""

from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, SingleDeviceSharding

# JAX's memory kind of the host.
_HOST = "pinned_host"


def take(state: Any) -> Any:
    """Copy the arrays or shards that this process writes.

    Returns:
      Tree like `state`. Arrays sharded over several processes are JAX arrays in host
      memory, with the shards of this process. Other arrays are NumPy arrays in process
      0, and None in other processes.
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
    # Process 0 also writes the metadata of all arrays.
    if jax.process_index() != 0 and (_is_whole(x) or not _is_written_here(x)):
        return None
    if not _is_whole(x):
        return _to_host(x)
    host = np.asarray(x)
    # np.asarray of an array on CPU may be a view, which needs a copy.
    return host if host.flags.owndata else host.copy()


def _is_written_here(x: jax.Array) -> bool:
    return any(shard.replica_id == 0 for shard in x.addressable_shards)


def _to_host(x: jax.Array) -> jax.Array:
    """Start copies of the local shards to host memory, device by device."""
    assert isinstance(x.sharding, NamedSharding)
    shards = [
        jax.device_put(
            shard.data, SingleDeviceSharding(shard.device, memory_kind=_HOST)
        )
        for shard in x.addressable_shards
    ]
    sharding = x.sharding.with_memory_kind(_HOST)
    return jax.make_array_from_single_device_arrays(x.shape, sharding, shards)
