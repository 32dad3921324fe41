"""A copy of a state in the host's memory: the one thing that training waits for.

The next step reuses the memory of the state's arrays, on a device or, on a CPU, on the
host. All else of a save works on the copy, beside the training.
"""

import functools
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec


def take(state: Any) -> Any:
    """Return a state of NumPy arrays, which share no memory with a device.

    All processes must call it at the same place; the first gets the arrays, which it
    writes, and the others None for each.
    """
    writes = jax.process_index() == 0
    for x in jax.tree.leaves(state) if writes else ():
        if x.is_fully_addressable or x.is_fully_replicated:
            x.copy_to_host_async()
    return jax.tree.map(functools.partial(_copy, writes=writes), state)


def _copy(x: jax.Array, *, writes: bool) -> np.ndarray | None:
    """Copy an array to the host; one that processes share is brought to the first.

    They are gathered one at a time, so that no device holds two whole ones.
    """
    if not (x.is_fully_addressable or x.is_fully_replicated):
        assert isinstance(x.sharding, NamedSharding)
        x = _replicate(NamedSharding(x.sharding.mesh, PartitionSpec()))(x)
    if not writes:
        return None
    there = np.asarray(x)
    # Of an array on a CPU, NumPy gets a view; of any other a copy, which is enough.
    return there if there.flags.owndata else there.copy()


@functools.cache
def _replicate(sharding: NamedSharding) -> Any:
    return jax.jit(lambda x: x, out_shardings=sharding)
