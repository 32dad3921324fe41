"""Float dtypes for computations in float32 or wider."""

from typing import Any

import jax
import jax.numpy as jnp


def wide(dtype: Any) -> jnp.dtype:
    """Return float32 for float16, bfloat16 and float32, and float64 for float64."""
    return jnp.promote_types(dtype, jnp.float32)


def widen(tree: Any) -> Any:
    """Cast float arrays in a tree to at least float32."""
    return jax.tree.map(_widen, tree)


def _widen(x: Any) -> Any:
    is_float = isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jnp.floating)
    return x.astype(wide(x.dtype)) if is_float else x
