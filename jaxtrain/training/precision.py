"""Precision: the dtypes of a run, and rounded updates."""

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
    """The dtypes of parameters, computation and logits, and how products are computed.

    Attributes:
      products: of float32 numbers, as `jax.default_matmul_precision` takes it. The
        default is TensorFloat-32 on NVIDIA GPUs from Ampere on.
    """

    products: Literal["float32", "tensorfloat32", "default"]

    @property
    def scales_loss(self) -> bool:
        """Whether gradients pass through float16, whose loss is scaled."""
        return jnp.float16 in _dtypes(self)

    @property
    def product_dtype(self) -> str:
        """Name of the dtype in which matrix products and convolutions are computed."""
        if self.products == "tensorfloat32":
            return self.products
        return jnp.dtype(self.compute_dtype).name

    def describe(self) -> str:
        """Say in words what parameters, products and logits are."""
        params, compute, output = (jnp.dtype(d).name for d in _dtypes(self))
        products = self.products if compute == "float32" else compute
        rounding = "" if params == wide(params) else ", updates rounded at random"
        return f"parameters {params}{rounding}, products {products}, logits {output}"


def parse(text: str) -> Policy:
    """Parse a short name, or `params=DTYPE,compute=DTYPE,output=DTYPE`.

    Raises:
      UserError: the text is neither, or names float64 where JAX has none.
    """
    try:
        # A bare dtype is valid to jmp but means all three of them, logits included,
        # where `bf16` and `fp16` here do not.
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
            f"precision = {text!r}: JAX computes in float64 only if it is told so: set "
            "JAX_ENABLE_X64=1 in the environment"
        )
    if text == "tf32":
        return Policy(*dtypes, "tensorfloat32")
    return Policy(*dtypes, "float32" if dtypes[1] == jnp.float32 else "default")


def add_updates(params: Any, updates: Any, key: jax.Array) -> Any:
    """Add updates to parameters, in the parameters' dtypes.

    The sum is that of float32. What bfloat16 or float16 cannot hold of it is rounded up
    or down at random: to the nearest, an update below half of the last bit would be
    lost each time (Zamirai et al. 2021, arXiv:2010.06192).

    Args:
      params: Floats of any dtypes.
      updates: Updates of the same tree, in at least float32.
      key: Key of the step; each array has its own, made from its path.
    """

    def add(path: Any, p: jax.Array, update: jax.Array) -> jax.Array:
        total = p + update
        if p.dtype == wide(p.dtype):
            return total.astype(p.dtype)
        own_key = jax.random.fold_in(key, zlib.crc32(path_name(path).encode()))
        return round_at_random(total, p.dtype, own_key)

    return jax.tree_util.tree_map_with_path(add, params, updates)


def round_at_random(x: jax.Array, dtype: Any, key: jax.Array) -> jax.Array:
    """Round to one of the two nearest values, so that the mean is `x`.

    Args:
      x: Floats in float32; what is not finite, or too large for `dtype`, stays or
        becomes so.
      dtype: Either bfloat16 or float16.
      key: Key of the draws, one an element.
    """
    nearest = x.astype(dtype)
    error = x - nearest.astype(x.dtype)
    other = jnp.nextafter(nearest, jnp.copysign(jnp.inf, error).astype(dtype))
    gap = jnp.abs(other.astype(x.dtype) - nearest.astype(x.dtype))
    draws = jax.random.uniform(key, x.shape, x.dtype)
    return jnp.where(draws < jnp.abs(error) / gap, other, nearest)


def _dtypes(policy: jmp.Policy) -> tuple[jnp.dtype, jnp.dtype, jnp.dtype]:
    return policy.param_dtype, policy.compute_dtype, policy.output_dtype
