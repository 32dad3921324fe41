"""Float dtypes: what is computed and kept in float32 or wider, whatever the policy."""

from typing import Any

import jax
import jax.numpy as jnp


def wide(dtype: Any) -> jnp.dtype:
    """Return float32 for float16, bfloat16 and float32, and float64 for float64."""
    return jnp.promote_types(dtype, jnp.float32)


def widen(tree: Any) -> Any:
    """Cast the float arrays of a tree to float32, but for those of float64."""
    return jax.tree.map(_widen, tree)


def _widen(x: Any) -> Any:
    is_float = isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jnp.floating)
    return x.astype(wide(x.dtype)) if is_float else x
