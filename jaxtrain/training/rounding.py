"""Sums of parameters and updates in dtypes that are too narrow to hold them."""

import zlib
from typing import Any

import jax
import jax.numpy as jnp

from jaxtrain.dtypes import wide


def add_updates(params: Any, updates: Any, key: jax.Array) -> Any:
    """Add updates to parameters, in the parameters' dtypes.

    The sum is that of float32. What bfloat16 or float16 cannot hold of it is rounded up
    or down at random: to the nearest, an update below half of the last bit would be
    lost each time (Zamirai et al. 2021, arXiv:2010.06192).

    Args:
      params: floats.
      updates: of the same tree, in at least float32.
      key: of the step; each array has its own, made from its path.
    """

    def add(path: Any, p: jax.Array, update: jax.Array) -> jax.Array:
        total = p + update
        if p.dtype == wide(p.dtype):
            return total.astype(p.dtype)
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        own_key = jax.random.fold_in(key, zlib.crc32(name.encode()))
        return round_at_random(total, p.dtype, own_key)

    return jax.tree_util.tree_map_with_path(add, params, updates)


def round_at_random(x: jax.Array, dtype: Any, key: jax.Array) -> jax.Array:
    """Round to one of the two nearest values, so that the mean is `x`.

    Args:
      x: float32; what is not finite, or too large for `dtype`, stays or becomes so.
      dtype: bfloat16 or float16.
      key: of the draws, one an element.
    """
    nearest = x.astype(dtype)
    error = x - nearest.astype(x.dtype)
    other = jnp.nextafter(nearest, jnp.copysign(jnp.inf, error).astype(dtype))
    gap = jnp.abs(other.astype(x.dtype) - nearest.astype(x.dtype))
    draws = jax.random.uniform(key, x.shape, x.dtype)
    return jnp.where(draws < jnp.abs(error) / gap, other, nearest)
