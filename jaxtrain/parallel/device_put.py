"""Transfer of host arrays to devices with a given sharding and layout."""

from typing import Any

import jax
import numpy as np


def put_like(array: np.ndarray, placed: Any) -> jax.Array:
    """Put a host array on devices, with the shape, dtype and format of `placed`.

    An array of fewer dims, such as ungrouped batch-norm statistics, is broadcast.

    Args:
      array: Array in host memory.
      placed: Array or `jax.ShapeDtypeStruct`, with a format (sharding and layout).
    """
    array = np.broadcast_to(array, placed.shape)

    def shard_of(index: Any) -> np.ndarray:
        shard = array[index].astype(placed.dtype, copy=False)
        # Copy, as a JAX array on a CPU may alias a contiguous NumPy array, which may be
        # memory-mapped from a file that other processes change. JAX copies other
        # arrays, such as transposed ones, in half of NumPy's time.
        return shard.copy() if shard.flags.c_contiguous else shard

    array_on_devices = jax.make_array_from_callback(
        placed.shape, placed.sharding, shard_of
    )
    # Transpose into the memory layout of `placed`.
    ordered = placed.format.layout is not None
    return (
        jax.device_put(array_on_devices, placed.format) if ordered else array_on_devices
    )
