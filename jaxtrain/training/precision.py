"""Precision policies and stochastic rounding."""

import zlib
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import jmp

from jaxtrain.dtypes import wide
from jaxtrain.errors import UserError
from jaxtrain.training import POLICIES
from jaxtrain.trees import path_name


@dataclass(frozen=True)
class Policy(jmp.Policy):
    """Dtypes of parameters, computation and logits, and the matmul precision.

    Attributes:
      products: Precision of float32 products, a value of
        `jax.default_matmul_precision`. JAX's default is TensorFloat-32 on NVIDIA GPUs
        since Ampere.
    """

    products: Literal["float32", "tensorfloat32", "default"]

    @property
    def scales_loss(self) -> bool:
        """Whether gradients pass through float16, which needs loss scaling."""
        return jnp.float16 in _dtypes(self)

    @property
    def product_dtype(self) -> str:
        """Name of the dtype of matrix products and convolutions."""
        if self.products == "tensorfloat32":
            return self.products
        return jnp.dtype(self.compute_dtype).name

    def describe(self) -> str:
        """Describe the dtypes of parameters, products and logits."""
        params, compute, output = (jnp.dtype(d).name for d in _dtypes(self))
        products = self.products if compute == "float32" else compute
        rounding = "" if params == wide(params) else ", updates rounded stochastically"
        return f"parameters {params}{rounding}, products {products}, logits {output}"


def parse(text: str) -> Policy:
    """Parse a name of `POLICIES`, or `params=DTYPE,compute=DTYPE,output=DTYPE`.

    Raises:
      UserError: Invalid text, or float64 without `jax_enable_x64`.
    """
    try:
        # jmp applies a bare dtype, such as `bfloat16`, to parameters, computation and
        # output. Bare dtypes are rejected, as users may confuse them with `bf16`.
        if text not in POLICIES and "=" not in text:
            raise ValueError("not a known name")
        dtypes = _dtypes(jmp.get_policy(POLICIES.get(text, text)))
    except ValueError as error:
        raise UserError(
            f"precision = {text!r}: {error}; expected {', '.join(POLICIES)} or "
            "params=DTYPE,compute=DTYPE,output=DTYPE"
        ) from None
    if any(jax.dtypes.canonicalize_dtype(dtype) != dtype for dtype in dtypes):
        raise UserError(
            f"precision = {text!r}: JAX disables float64 by default; set the "
            "environment variable JAX_ENABLE_X64=1"
        )
    if text == "tf32":
        return Policy(*dtypes, "tensorfloat32")
    return Policy(*dtypes, "float32" if dtypes[1] == jnp.float32 else "default")


def add_updates(params: Any, updates: Any, key: jax.Array) -> Any:
    """Add updates to parameters, with stochastic rounding to their dtypes.

    The sum is computed in float32. With rounding to nearest, bfloat16 or float16
    parameters would lose each update below half a unit in the last place (Zamirai et
    al. 2021, arXiv:2010.06192).

    Args:
      params: Parameters, floating-point arrays of any dtype.
      updates: Updates, a tree of the same structure, in at least float32.
      key: PRNG key of the step; the path of each array is folded in.
    """

    def add(path: Any, p: jax.Array, update: jax.Array) -> jax.Array:
        total = p + update
        if p.dtype == wide(p.dtype):
            return total.astype(p.dtype)
        own_key = jax.random.fold_in(key, zlib.crc32(path_name(path).encode()))
        return round_at_random(total, p.dtype, own_key)

    return jax.tree_util.tree_map_with_path(add, params, updates)


def round_at_random(x: jax.Array, dtype: Any, key: jax.Array) -> jax.Array:
    """Round stochastically: to one of the two nearest values, with expectation `x`.

    Args:
      x: Array in float32. Non-finite values are unchanged; values too large for
        `dtype` become infinite.
      dtype: Either bfloat16 or float16.
      key: PRNG key of the array.
    """
    nearest = x.astype(dtype)
    error = x - nearest.astype(x.dtype)
    other = jnp.nextafter(nearest, jnp.copysign(jnp.inf, error).astype(dtype))
    gap = jnp.abs(other.astype(x.dtype) - nearest.astype(x.dtype))
    draws = jax.random.uniform(key, x.shape, x.dtype)
    return jnp.where(draws < jnp.abs(error) / gap, other, nearest)


def _dtypes(policy: jmp.Policy) -> tuple[jnp.dtype, jnp.dtype, jnp.dtype]:
    return policy.param_dtype, policy.compute_dtype, policy.output_dtype
