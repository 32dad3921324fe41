"""Bring a state that processes share to process 0, which writes all checkpoints."""

import functools
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec


def on_first_host(state: Any) -> Any:
    """Bring arrays that processes share to the host of the first.

    Returns:
      The same arrays, of one process; else NumPy arrays in process 0, and None in place
      of each in the others.
    """
    return state if jax.process_count() == 1 else jax.tree.map(_whole, state)


def _whole(x: jax.Array) -> np.ndarray | None:
    """Bring over one array at a time, so that no device holds two whole ones."""
    if not x.is_fully_replicated:
        assert isinstance(x.sharding, NamedSharding)
        x = _replicate(NamedSharding(x.sharding.mesh, PartitionSpec()))(x)
    # A copy: the next step may write over the array.
    return np.array(x.addressable_data(0)) if jax.process_index() == 0 else None


@functools.cache
def _replicate(sharding: NamedSharding) -> Any:
    return jax.jit(lambda x: x, out_shardings=sharding)
