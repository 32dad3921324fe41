"""Fake quantization to 8 bits, with straight-through gradients.

Weights are quantized symmetrically, with a scale per output channel. Activations have a
scale and a zero point per tensor (Jacob et al. 2018, arXiv:1712.05877). Gradients pass
straight through rounding (Bengio et al. 2013, arXiv:1308.3432), and are 0 outside the
range of an activation.

Folding a batch norm for inference multiplies each output channel of the kernel by a
factor. This changes the channel's scale, but not its int8 values, except for their
sign. Training therefore does not fold norms, unlike Krishnamoorthi 2018
(arXiv:1806.08342).
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from flax.nnx.nn import dtypes as nnx_dtypes

from jaxtrain.dtypes import wide

# Largest quantized values: uint8 for activations, int8 for weights. Weights do not use
# -128, so that their range is symmetric.
ACTIVATION_LEVELS = 255
WEIGHT_LEVELS = 127
# Largest value of int32, the type of accumulators and biases.
LARGEST_SUM = 2**31 - 1
# Names of the fake-quantization functions in a jaxpr.
ROUND_ACTIVATION, ROUND_KERNEL = "fake_quantize", "fake_quantize_kernel"
ROUND_BIAS = "fake_quantize_bias"
# Momentum of the moving average of ranges.
MOMENTUM = 0.95


class RangeEnd(nnx.Variable):
    """Lower or upper end of a range, a scalar in at least float32."""


class ActivationRange(nnx.Module):
    """Quantizer of activations with a moving-average range.

    In training, the ends are moving averages of the minimum and maximum per batch, over
    all devices, initialized by the first batch. The range always contains 0. While it
    is uninitialized, (0, 0), values are not rounded.

    Attributes:
      low: Lower end of the range.
      high: Upper end of the range.
      use_running_average: Whether the range is fixed, as in evaluation; set by Flax's
        `train` and `eval`, as in batch norms.
      observe: Function to call with the values, which are then not rounded; None
        rounds the values.
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
    """Return the scale and the zero point of a range, both as floats.

    Args:
      low: Lower end of a range, 0 or less.
      high: Upper end of the range, 0 or more. The scale is 0 if both ends are equal.
    """
    scale = (high - low) / ACTIVATION_LEVELS
    zero = jnp.round(-low / jnp.where(scale > 0, scale, 1))
    return scale, jnp.clip(zero, 0, ACTIVATION_LEVELS)


@jax.jit
def fake_quantize(x: jax.Array, low: jax.Array, high: jax.Array) -> jax.Array:
    """Round `x` to the nearest of 256 levels of a range (low, high).

    Computed in at least float32, then cast to the dtype of `x`. The gradient is 1
    within the range, and 0 outside.
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
    """Round a kernel (..., out) to int8 with a scale per output channel.

    Computed in at least float32, then cast to the dtype of the kernel. The gradient
    passes straight through.
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
    """Round a bias to multiples of the scale of the int32 accumulator.

    Biases that exceed int32 are not rounded. The gradient passes straight through.

    Args:
      bias: Bias per output channel, (out,).
      kernel: Kernel of the layer, (..., out).
      factor: Factor of a folded norm per output channel, (out,); ones without a norm.
      low: Lower end of the input range.
      high: Upper end of the input range; if equal to `low`, the bias is not rounded.
    """
    values = bias.astype(wide(bias.dtype))
    largest = jnp.abs(kernel.astype(values.dtype)).max(range(kernel.ndim - 1))
    of_kernel = jnp.abs(factor) * largest / WEIGHT_LEVELS
    step, _ = scale_and_zero_point(low, high)
    # The scale of a zero kernel is 1 (`integers_of`).
    step = step * jnp.where(of_kernel > 0, of_kernel, 1)
    integers = jnp.round(values / jnp.where(step > 0, step, 1))
    fits = (step > 0) & (jnp.abs(integers) < LARGEST_SUM)
    rounded = jnp.where(fits, integers * step, values)
    return (values + jax.lax.stop_gradient(rounded - values)).astype(bias.dtype)


def promote_rounded(args: Any, /, *, dtype: Any = None, **options: Any) -> Any:
    """Round the kernel in `args`, (input, kernel, ...), then call `promote_dtype`."""
    x, kernel, *rest = args
    args = (x, fake_quantize_kernel(kernel[...]), *rest)
    return nnx_dtypes.promote_dtype(args, dtype=dtype, **options)


def integers_of(kernel: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Recover the int8 values and scales of a fake-quantized kernel (..., out).

    Output channels may have been scaled after rounding, such as by a folded norm.

    Returns:
      Values, int8 (..., out), and scales, float64 (out,), which are 1 for channels of
      zeros; None if the kernel is not fake-quantized.
    """
    wide_kernel = kernel.astype(np.float64)
    largest = np.abs(wide_kernel).max(axis=tuple(range(kernel.ndim - 1)))
    scale = np.where(largest > 0, largest, WEIGHT_LEVELS) / WEIGHT_LEVELS
    found = wide_kernel / scale
    integers = np.round(found)
    # Rounded kernels deviate from integers by about 1e-14 in float64, and by about
    # 127 * 2^-23 in float32.
    if np.abs(found - integers).max() > 1e-3:
        return None
    return integers.astype(np.int8), scale
