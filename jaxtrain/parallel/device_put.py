"""Transfer of host arrays to devices, with the sharding of a given array."""

from typing import Any

import jax
import numpy as np


def put_like(array: np.ndarray, placed: Any) -> jax.Array:
    """Put a host array on devices, with shape, dtype, sharding and layout of `placed`.

    Arrays with fewer axes are broadcast, such as ungrouped batch-norm statistics.

    Args:
      array: Array in host memory.
      placed: Array, or its shape, dtype and sharding.
    """
    array = np.broadcast_to(array, placed.shape)

    def shard_of(index: Any) -> np.ndarray:
        shard = array[index].astype(placed.dtype, copy=False)
        # Copy, as a JAX array on a CPU may alias a NumPy array, which may be
        # memory-mapped from a file that other processes change. Only JAX copies
        # transposed arrays, as NumPy takes twice the time.
        return shard.copy() if shard.flags.c_contiguous else shard

    array_on_devices = jax.make_array_from_callback(
        placed.shape, placed.sharding, shard_of
    )
    # Transpose into the memory layout of `placed`.
    ordered = placed.format.layout is not None
    return (
        jax.device_put(array_on_devices, placed.format) if ordered else array_on_devices
    )
