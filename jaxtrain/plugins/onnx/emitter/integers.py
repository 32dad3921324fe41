"""Export of quantization-aware trained models as 8-bit integers.

A quantized array passes through a pair of QuantizeLinear and DequantizeLinear (QDQ),
which runtimes fuse with adjacent operators. Kernels are integers with a scale per
output channel, and biases are integers in the scale of the accumulator.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxtrain.plugins.onnx.emitter.graph import Node, constant, elementwise
from jaxtrain.plugins.onnx.emitter.write import Order, Writer
from jaxtrain.plugins.quantization.fake_quantization import (
    LARGEST_SUM,
    ROUND_ACTIVATION,
    ROUND_BIAS,
    ROUND_KERNEL,
    fake_quantize_bias,
    fake_quantize_kernel,
    integers_of,
    scale_and_zero_point,
)

# Operator of a quantized node, with attributes `scale` and `zero`.
ROUND = "FakeQuantize"
# Range-preserving operators: outputs are input values, or 0.
KEEPING = ("MaxPool", "Relu", "Reshape", "Slice", "Transpose")


def _activation(x: Node, low: Node, high: Node) -> Node:
    """Convert the fake quantization of activations to a `ROUND` node."""
    # Use the model's code and dtype: other rounding could give another zero point.
    ends = (jnp.asarray(end.value.astype(end.dtype)) for end in (low, high))
    scale, zero = map(np.asarray, scale_and_zero_point(*ends))
    if scale == 0:  # The range is uninitialized.
        return x
    attributes = {"scale": float(scale), "zero": int(zero)}
    return elementwise(ROUND, x, **attributes)


def _kernel(kernel: Node) -> Node:
    """Convert the fake quantization of a kernel to a constant: integers * scale."""
    given = jnp.asarray(kernel.value.astype(kernel.dtype))
    found = integers_of(np.asarray(fake_quantize_kernel(given)))
    assert found is not None
    integers, scale = found
    return constant(integers.astype(np.float64) * scale, kernel.dtype)


def _bias(*given: Node) -> Node:
    """Convert the fake quantization of a bias to a constant."""
    arrays = [jnp.asarray(node.value.astype(node.dtype)) for node in given]
    found = np.asarray(fake_quantize_bias(*arrays), np.float64)
    return constant(found, given[0].dtype)


# Name of a jitted function -> function that converts its call to a node.
RULES: dict[str, Callable[..., Node]] = {
    ROUND_ACTIVATION: _activation,
    ROUND_BIAS: _bias,
    ROUND_KERNEL: _kernel,
}


def write_round(to: Writer, node: Node) -> tuple[str, Order]:
    """Write a QDQ pair in the layout of its input."""
    (x,), a = node.inputs, node.attributes
    order = to.order_of(x) if not x.is_constant else tuple(range(len(x.shape)))
    ends = [to.constant(a["scale"], np.float32), to.constant(a["zero"], np.uint8)]
    name = to.add("QuantizeLinear", [to.get(x, order), *ends])
    return to.add("DequantizeLinear", [name, *ends]), order


class Integers(NamedTuple):
    """Integer weights of a convolution or matrix product.

    Attributes:
      kernel: Integers in the range of int8, float64 (..., outputs).
      scale: Scale per output channel, float64 (outputs,).
      bias: Integers in the range of int32, in the accumulator's scale, float64
        (outputs,); None without a bias or without quantized activations.
      step: Scale of the input activations; None if they are not quantized.
    """

    kernel: np.ndarray
    scale: np.ndarray
    bias: np.ndarray | None
    step: float | None


def weights_of(x: Node, kernel: Node, bias: list[Node]) -> Integers | None:
    """Return the integer weights of an operator; None if the kernel is not quantized.

    Args:
      x: Input of the operator.
      kernel: Constant kernel (..., outputs).
      bias: List with the constant bias (outputs,), or an empty list.
    """
    found = integers_of(kernel.value)
    if found is None:
        return None
    integers, scale = found
    step = _step(x)
    if not bias or step is None:
        return Integers(integers.astype(np.float64), scale, None, step)
    # A folded batch norm may scale the kernel of a channel to almost 0. In the tiny
    # scale of the accumulator, the bias then exceeds int32. Increasing the scale of the
    # kernel costs less accuracy than clipping the bias.
    addends = bias[0].value.astype(np.float64)
    least = np.abs(addends) / (step * LARGEST_SUM)
    integers = np.round(integers * (scale / np.maximum(scale, least)))
    scale = np.maximum(scale, least)
    return Integers(integers, scale, np.round(addends / (step * scale)), step)


def write_weights(
    to: Writer, x: Node, kernel: Node, bias: list[Node], order: Order
) -> list[str]:
    """Write kernel and bias of a convolution or matrix product; return their names.

    Kernel and bias are stored as integers if the kernel was quantized in training.

    Args:
      to: Writer of the file.
      x: Input of the operator.
      kernel: Constant kernel (..., outputs).
      bias: List with the constant bias (outputs,), or an empty list.
      order: Order of the dims of the kernel in the file.
    """
    found = weights_of(x, kernel, bias) if to.integers else None
    if found is None:
        return [to.get(kernel, order), *map(to.get, bias)]
    dim = order.index(len(order) - 1)
    name = to.constant(found.kernel.transpose(order), np.int8)
    names = [_dequantized(to, name, found.scale, dim, np.int8)]
    if found.bias is None:
        return [*names, *map(to.get, bias)]
    assert found.step is not None
    name = to.constant(found.bias, np.int32)
    return [*names, _dequantized(to, name, found.step * found.scale, 0, np.int32)]


def _dequantized(to: Writer, name: str, scale: np.ndarray, dim: int, dtype: Any) -> str:
    zeros = to.constant(np.zeros(len(scale)), dtype)
    ends = [to.constant(scale, np.float32), zeros]
    return to.add("DequantizeLinear", [name, *ends], axis=dim)


def _step(x: Node) -> float | None:
    """Return the scale of activations; None if they are not quantized."""
    while x.op in KEEPING:
        x = x.inputs[0]
    return x.attributes["scale"] if x.op == ROUND else None
