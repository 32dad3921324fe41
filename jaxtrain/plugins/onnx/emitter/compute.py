"""Conversion of ONNX graphs to JAX functions with LiteRT's quantization markers.

LiteRT's converter reads StableHLO: a composite `quant.fake_quant` marks each float
array that becomes int8, with its scales and zero points. Batch norms are already
folded, and kernels are rounded as in quantization-aware training.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxtrain.plugins.onnx.emitter.graph import Node, ordered, unknown
from jaxtrain.plugins.onnx.emitter.integers import ROUND, weights_of

# Difference between the zero points of int8 (LiteRT) and of uint8 (ONNX).
OFFSET = -128
ON_ELEMENTS: dict[str, Callable[..., jax.Array]] = {
    "Abs": jnp.abs,
    "Add": jnp.add,
    "Barrier": lambda x: x,
    "Clip": jnp.clip,
    "Div": jnp.divide,
    "Exp": jnp.exp,
    "Gelu": lambda x: jax.nn.gelu(x, approximate=False),
    "HardSigmoid": lambda x, alpha, beta: jnp.clip(alpha * x + beta, 0, 1),
    "HardSwish": jax.nn.hard_swish,
    "Log": jnp.log,
    "Max": jnp.maximum,
    "Min": jnp.minimum,
    "Mul": jnp.multiply,
    "Neg": jnp.negative,
    "Pow": jnp.power,
    "Reciprocal": lambda x: 1 / x,
    "Relu": jax.nn.relu,
    "Sigmoid": jax.nn.sigmoid,
    "Sqrt": jnp.sqrt,
    "Sub": jnp.subtract,
    "Tanh": jnp.tanh,
}
REDUCTIONS: dict[str, Callable[..., jax.Array]] = {
    "ReduceMax": jnp.max,
    "ReduceMean": jnp.mean,
    "ReduceMin": jnp.min,
    "ReduceSum": jnp.sum,
}


def function_of(images: Node, output: Node) -> Callable[[jax.Array], jax.Array]:
    """Convert an ONNX graph to a JAX function of images.

    Raises:
      UserError: The graph has an unsupported operator.
    """

    def function(x: jax.Array) -> jax.Array:
        values: dict[int, Any] = {id(images): x}
        for node in ordered(output):
            if node.is_constant:
                values[id(node)] = jnp.asarray(node.value, node.dtype)
            elif node is not images:
                inputs = [values[id(given)] for given in node.inputs]
                values[id(node)] = _apply(node, inputs)
        return values[id(output)]

    return function


def _apply(node: Node, inputs: list[Any]) -> Any:
    if node.op in ON_ELEMENTS:
        return ON_ELEMENTS[node.op](*inputs, **node.attributes)
    if node.op in REDUCTIONS:
        a = node.attributes
        reduce = REDUCTIONS[node.op]
        return reduce(inputs[0], axis=tuple(a["axes"]), keepdims=a["keepdims"])
    if node.op not in RULES:
        raise unknown(f"the operator {node.op} in an 8-bit model")
    return RULES[node.op](node, *inputs)


def rounded(x: jax.Array, scale: Any, zero: Any, dim: int | None = None) -> jax.Array:
    """Wrap an array in a fake-quantization op, which LiteRT converts to int8.

    Args:
      x: Array, whose values may already be quantized.
      scale: Scale; per channel if `dim` is given.
      zero: Zero point; per channel if `dim` is given.
      dim: Output dim of a kernel, which is rounded to -127..127; None for activations.
    """
    attributes: dict[str, Any] = {
        "dtype": "i8",
        "narrow_range": dim is not None,
        "scale": np.atleast_1d(np.asarray(scale, np.float32)),
        "zero_point": np.atleast_1d(np.asarray(zero, np.int64)),
    }
    if dim is not None:
        attributes["quantization_dimension"] = np.int32(dim)
    return lax.composite(lambda x, **_: x, "quant.fake_quant")(x, **attributes)


def _round(node: Node, x: jax.Array) -> jax.Array:
    a = node.attributes
    return rounded(x, a["scale"], a["zero"] + OFFSET)


def _weights(node: Node, kernel: jax.Array, bias: list[jax.Array]) -> list[jax.Array]:
    """Return kernel and bias; a quantized kernel is wrapped in fake quantization."""
    x, of_kernel, *of_bias = node.inputs
    found = weights_of(x, of_kernel, of_bias) if of_kernel.is_constant else None
    if found is None:
        return [kernel, *bias]
    values = jnp.asarray(found.kernel * found.scale, kernel.dtype)
    zeros = np.zeros(len(found.scale))
    kernel = rounded(values, found.scale, zeros, kernel.ndim - 1)
    if found.bias is None or found.step is None:
        return [kernel, *bias]
    sums = found.bias * found.step * found.scale
    return [kernel, jnp.asarray(sums, bias[0].dtype)]


def _convolution(
    node: Node, x: jax.Array, kernel: jax.Array, *bias: jax.Array
) -> jax.Array:
    kernel, *addends = _weights(node, kernel, [*bias])
    a, rank = node.attributes, x.ndim - 2
    y = lax.conv_general_dilated(
        x,
        kernel,
        a["strides"],
        [*zip(a["pads"][:rank], a["pads"][rank:], strict=True)],
        rhs_dilation=a["dilations"],
        feature_group_count=a["group"],
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )
    return y + addends[0] if addends else y


def _product(
    node: Node, x: jax.Array, kernel: jax.Array, *bias: jax.Array
) -> jax.Array:
    kernel, *addends = _weights(node, kernel, [*bias])
    y = jnp.matmul(x, kernel)
    return y + addends[0] if addends else y


def _pool(node: Node, x: jax.Array) -> jax.Array:
    a = node.attributes
    window, strides = ((1, *a[name], 1) for name in ("kernel_shape", "strides"))
    half = len(a["pads"]) // 2
    sides = zip(a["pads"][:half], a["pads"][half:], strict=True)
    pads = ((0, 0), *sides, (0, 0))
    if node.op == "MaxPool":
        holes = (1, *a.get("dilations", [1] * half), 1)
        least = -jnp.inf
        return lax.reduce_window(
            x, least, lax.max, window, strides, pads, window_dilation=holes
        )
    total = lax.reduce_window(x, 0.0, lax.add, window, strides, pads)
    if a["count_include_pad"]:
        return total / np.prod(a["kernel_shape"])
    counts = lax.reduce_window(
        jnp.ones((1, *x.shape[1:-1], 1), x.dtype), 0.0, lax.add, window, strides, pads
    )
    return total / counts


def _slice(node: Node, x: jax.Array) -> jax.Array:
    parts = [slice(None)] * x.ndim
    for dim, start, stop, stride in node.attributes["cut"]:
        parts[dim] = slice(start, stop, stride)
    return x[tuple(parts)]


def _pad(node: Node, x: jax.Array) -> jax.Array:
    a = node.attributes
    return jnp.pad(x, a["sides"], constant_values=a["value"])


def _scale_and_shift(_: Node, x: jax.Array, scale: Any, shift: Any) -> jax.Array:
    return x * scale + shift


def _layer_norm(node: Node, x: jax.Array, scale: Any, shift: Any) -> jax.Array:
    mean = x.mean(-1, keepdims=True)
    variance = jnp.square(x - mean).mean(-1, keepdims=True)
    y = (x - mean) * lax.rsqrt(variance + node.attributes["epsilon"])
    return y * scale + shift


RULES: dict[str, Callable[..., Any]] = {
    "AveragePool": _pool,
    "BatchNormalization": _scale_and_shift,
    "Cast": lambda node, x: x.astype(node.dtype),
    "Concat": lambda node, *xs: jnp.concatenate(xs, node.attributes["axis"]),
    "Conv": _convolution,
    "Expand": lambda node, x: jnp.broadcast_to(x, node.shape),
    "LayerNormalization": _layer_norm,
    "MatMul": _product,
    "MaxPool": _pool,
    "Pad": _pad,
    "Reshape": lambda node, x: x.reshape(node.shape),
    ROUND: _round,
    "Slice": _slice,
    "Transpose": lambda node, x: x.transpose(node.attributes["order"]),
}
