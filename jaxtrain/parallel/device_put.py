"""Arrays of the host, put on the devices with the sharding of others."""

from typing import Any

import jax
import numpy as np


def put_like(array: np.ndarray, placed: Any) -> jax.Array:
    """Place an array as another one is, in its dtype: each device gets its part of it.

    An array of fewer dims is repeated: statistics of each group of batch norm begin
    with those of all.

    Args:
      array: Array of the host.
      placed: Array, or its shape, dtype and sharding.
    """
    array = np.broadcast_to(array, placed.shape)

    def part(index: Any) -> np.ndarray:
        found = array[index].astype(placed.dtype, copy=False)
        # Arrays of a CPU may lie where NumPy's do, and these in a file, which others
        # may change. What is transposed is copied in any case, by JAX in half the time.
        return found.copy() if found.flags.c_contiguous else found

    made = jax.make_array_from_callback(placed.shape, placed.sharding, part)
    # In the order in memory that the other one has.
    ordered = placed.format.layout is not None
    return jax.device_put(made, placed.format) if ordered else made
