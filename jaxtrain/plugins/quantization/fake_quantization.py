"""Numbers rounded to 8 bits in training, with gradients as if they were not.

Weights are symmetric, with a scale for each output channel; activations have one scale
and a zero point each (Jacob et al. 2018, arXiv:1712.05877). Rounding passes gradients
straight through (Bengio et al. 2013, arXiv:1308.3432); what lies outside of the range
of an activation has none.

A scale of an output channel commutes with the factor that a batch norm has for it: of
`factor * kernel` the integers are those of `kernel`, up to the sign. So a norm that is
folded into the kernel for inference, as Krishnamoorthi 2018 (arXiv:1806.08342) has it
folded in training, too, changes no integer: training need not fold it.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from flax.nnx.nn import dtypes as nnx_dtypes

from jaxtrain.dtypes import wide

# Largest integers: uint8 of activations; int8 of weights, of which -128 is left out.
ACTIVATION_LEVELS = 255
WEIGHT_LEVELS = 127
# Sums of products, and what is added to them, are int32.
LARGEST_SUM = 2**31 - 1
# Names of the functions that round, as a jaxpr has them.
ROUND_ACTIVATION, ROUND_KERNEL = "fake_quantize", "fake_quantize_kernel"
ROUND_BIAS = "fake_quantize_bias"
# What a step keeps of a range; the rest is that of its batch.
MOMENTUM = 0.95


class RangeEnd(nnx.Variable):
    """The lower or the upper end of a range, a scalar, at least float32."""


class ActivationRange(nnx.Module):
    """Rounds activations to the integers of their range.

    In training the range is the moving average of the smallest and of the largest
    value of the batches, over all devices; 0 always lies within. The first batch sets
    it. A range without a batch, (0, 0), rounds nothing.

    Attributes:
      low: Lower end.
      high: Upper end.
      use_running_average: Whether the range stays as it is, as in an evaluation; Flax
        sets it together with that of batch norms.
      observe: Is given what would be rounded, which stays as it is; None rounds.
    """

    observe: Callable[[jax.Array], None] | None = None

    def __init__(self, dtype: Any):
        self.low = RangeEnd(jnp.zeros((), wide(dtype)))
        self.high = RangeEnd(jnp.zeros((), wide(dtype)))
        self.use_running_average = False

    def __call__(self, x: jax.Array) -> jax.Array:
        if self.observe is not None:
            self.observe(x)
            return x
        low, high = self.low[...], self.high[...]
        if not self.use_running_average:
            is_first, values = low == high, jax.lax.stop_gradient(x)
            lowest = jnp.minimum(values.min(), 0).astype(low.dtype)
            highest = jnp.maximum(values.max(), 0).astype(high.dtype)
            part = jnp.where(is_first, 1, 1 - MOMENTUM).astype(low.dtype)
            low, high = low + part * (lowest - low), high + part * (highest - high)
            self.low.set_value(low)
            self.high.set_value(high)
        return fake_quantize(x, low, high)


def scale_and_zero_point(low: Any, high: Any) -> tuple[jax.Array, jax.Array]:
    """Return the size of a step, and the integer of 0, as a float.

    Args:
      low: Lower end of a range, 0 or less.
      high: Upper end, 0 or more. Equal ends have the scale 0.
    """
    scale = (high - low) / ACTIVATION_LEVELS
    zero = jnp.round(-low / jnp.where(scale > 0, scale, 1))
    return scale, jnp.clip(zero, 0, ACTIVATION_LEVELS)


@jax.jit
def fake_quantize(x: jax.Array, low: jax.Array, high: jax.Array) -> jax.Array:
    """Return the nearest of 256 numbers between the ends of a range.

    Computed in at least float32, and rounded to the dtype of `x`. The gradient is that
    of `x` within the range, and 0 outside.
    """
    return _rounded(x, *map(jax.lax.stop_gradient, (low, high)))


@jax.custom_jvp
def _rounded(x: jax.Array, low: jax.Array, high: jax.Array) -> jax.Array:
    scale, zero = scale_and_zero_point(low, high)
    step = jnp.where(scale > 0, scale, 1)
    values = x.astype(low.dtype)
    integers = jnp.clip(jnp.round(values / step) + zero, 0, ACTIVATION_LEVELS)
    return jnp.where(scale > 0, (integers - zero) * step, values).astype(x.dtype)


@_rounded.defjvp
def _rounded_jvp(primals: Any, tangents: Any) -> tuple[jax.Array, jax.Array]:
    x, low, high = primals
    scale, zero = scale_and_zero_point(low, high)
    step = jnp.where(scale > 0, scale, 1)
    integers = jnp.round(x.astype(low.dtype) / step) + zero
    inside = (integers >= 0) & (integers <= ACTIVATION_LEVELS) | (scale == 0)
    return _rounded(*primals), jnp.where(inside, tangents[0], 0)


@jax.jit
def fake_quantize_kernel(kernel: jax.Array) -> jax.Array:
    """Return a kernel (..., out) rounded to the integers of each output channel.

    Computed in at least float32, and rounded to the dtype of the kernel. The gradient
    is that of the kernel.
    """
    return _rounded_kernel(kernel)


@jax.custom_jvp
def _rounded_kernel(kernel: jax.Array) -> jax.Array:
    values = kernel.astype(wide(kernel.dtype))
    scale = jnp.abs(values).max(range(kernel.ndim - 1)) / WEIGHT_LEVELS
    step = jnp.where(scale > 0, scale, 1)
    integers = jnp.clip(jnp.round(values / step), -WEIGHT_LEVELS, WEIGHT_LEVELS)
    return (integers * step).astype(kernel.dtype)


@_rounded_kernel.defjvp
def _rounded_kernel_jvp(primals: Any, tangents: Any) -> tuple[jax.Array, jax.Array]:
    return _rounded_kernel(*primals), tangents[0]


@jax.jit
def fake_quantize_bias(
    bias: jax.Array, kernel: jax.Array, factor: jax.Array, low: Any, high: Any
) -> jax.Array:
    """Return a bias rounded to the scale of the sums that it is added to.

    One that no int32 holds stays as it is. The gradient is that of the bias.

    Args:
      bias: Bias of each output channel, (out,).
      kernel: Kernel of the products, (..., out).
      factor: What the kernel of each channel is multiplied with, (out,).
      low: Lower end of the range of what the kernel is multiplied with.
      high: Upper end. Equal ends leave the bias as it is.
    """
    values = bias.astype(wide(bias.dtype))
    largest = jnp.abs(kernel.astype(values.dtype)).max(range(kernel.ndim - 1))
    of_kernel = jnp.abs(factor) * largest / WEIGHT_LEVELS
    step, _ = scale_and_zero_point(low, high)
    # Of a kernel of zeros the scale is 1 (`integers_of`).
    step = step * jnp.where(of_kernel > 0, of_kernel, 1)
    integers = jnp.round(values / jnp.where(step > 0, step, 1))
    is_held = (step > 0) & (jnp.abs(integers) < LARGEST_SUM)
    rounded = jnp.where(is_held, integers * step, values)
    return (values + jax.lax.stop_gradient(rounded - values)).astype(bias.dtype)


def promote_rounded(args: Any, /, *, dtype: Any = None, **options: Any) -> Any:
    """Cast (input, kernel, ...), as layers of Flax do, with a rounded kernel."""
    x, kernel, *rest = args
    args = (x, fake_quantize_kernel(kernel[...]), *rest)
    return nnx_dtypes.promote_dtype(args, dtype=dtype, **options)


def integers_of(kernel: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the integers and scales of a kernel (..., out) that was rounded.

    Its output channels may have been multiplied since, each by a number of its own.

    Returns:
      int8 as the kernel, and float64 (out,), 1 for channels that are 0; None: the
      kernel was not rounded.
    """
    wide_kernel = kernel.astype(np.float64)
    largest = np.abs(wide_kernel).max(axis=tuple(range(kernel.ndim - 1)))
    scale = np.where(largest > 0, largest, WEIGHT_LEVELS) / WEIGHT_LEVELS
    found = wide_kernel / scale
    integers = np.round(found)
    # In float64 they are off by some 1e-14; of float32, by 127 * 2^-23.
    if np.abs(found - integers).max() > 1e-3:
        return None
    return integers.astype(np.int8), scale
