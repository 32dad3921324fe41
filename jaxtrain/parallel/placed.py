"""Arrays of the host, placed on the devices as others lie there."""

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
    return in_order_of(made, placed)


def in_order_of(array: jax.Array, placed: Any) -> jax.Array:
    """Return an array with its dims in the order in memory that another one has.

    Args:
      array: Array that is sharded as `placed` is.
      placed: Array, or its abstract value with a format.
    """
    order = placed.format.layout
    return array if order is None else jax.device_put(array, placed.format)
