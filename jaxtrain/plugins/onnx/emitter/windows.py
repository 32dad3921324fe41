"""Conversion of convolutions and pooling."""

import functools
import math
from collections.abc import Callable
from typing import Any

from jaxtrain.plugins.onnx.emitter.arrays import pad
from jaxtrain.plugins.onnx.emitter.graph import (
    Node,
    constant,
    elementwise,
    transpose,
    unknown,
)


def pads_of(sides: Any) -> list[int]:
    """Convert (start, end) paddings to ONNX's order: all starts, then all ends."""
    return [low for low, _ in sides] + [high for _, high in sides]


def _convolution(eqn: Any, x: Node, kernel: Node) -> Node:
    p, out = eqn.params, eqn.outvars[0].aval
    if p["batch_group_count"] != 1 or any(d != 1 for d in p["lhs_dilation"]):
        raise unknown("a transposed convolution ('conv_general_dilated')")
    if not kernel.is_constant:
        raise unknown("a convolution whose kernel is computed")
    numbers = p["dimension_numbers"]
    # (batch, channels, rows, ...) -> (batch, rows, ..., channels)
    batch, channels, *rows = numbers.lhs_spec
    x = transpose(x, (batch, *rows, channels))
    outputs, inputs, *rows = numbers.rhs_spec
    kernel = transpose(kernel, (*rows, inputs, outputs))
    cut = [(min(0, low), min(0, high)) for low, high in p["padding"]]
    x = pad(x, [(0, 0), *cut, (0, 0)], 0.0)
    attributes = {
        "kernel_shape": list(kernel.shape[:-2]),
        "strides": list(p["window_strides"]),
        "pads": pads_of([(max(0, low), max(0, high)) for low, high in p["padding"]]),
        "dilations": list(p["rhs_dilation"]),
        "group": p["feature_group_count"],
    }
    batch, channels, *rows = numbers.out_spec
    order = (batch, *rows, channels)
    shape = tuple(out.shape[d] for d in order)
    y = Node("Conv", (x, kernel), shape, out.dtype, attributes)
    return transpose(y, tuple(sorted(range(len(order)), key=order.__getitem__)))


def _window(eqn: Any, x: Node, *, is_sum: bool = False) -> Node:
    """Convert a windowed maximum to MaxPool, or a windowed sum to AveragePool."""
    p = eqn.params
    size, strides = p["window_dimensions"], p["window_strides"]
    padding, dilation = p["padding"], p["window_dilation"]
    whole = len(size) > 2 and size[0] == size[-1] == strides[0] == strides[-1] == 1
    if not whole or any(d != 1 for d in p["base_dilation"]):
        raise unknown("'reduce_window' over batch or channels, or with base dilation")
    # Runtimes reject windows entirely in the padding, and dilated average pooling.
    if any(max(sides) >= k for sides, k in zip(padding, size, strict=True)):
        x = pad(x, padding, 0.0 if is_sum else -math.inf)
        padding = ((0, 0),) * len(size)
    attributes: dict[str, Any] = {
        "kernel_shape": list(size[1:-1]),
        "strides": list(strides[1:-1]),
        "pads": pads_of(padding[1:-1]),
    }
    holes, shape = any(d != 1 for d in dilation), eqn.outvars[0].aval.shape
    if not is_sum:
        if holes:
            attributes["dilations"] = list(dilation[1:-1])
        return Node("MaxPool", (x,), shape, x.dtype, attributes)
    if holes:
        raise unknown("sums over dilated windows")
    attributes["count_include_pad"] = 1
    mean = Node("AveragePool", (x,), shape, x.dtype, attributes)
    return elementwise("Mul", mean, constant(float(math.prod(size)), x.dtype))


def _any_window(eqn: Any, x: Node, start: Node) -> Node:
    """Convert a `reduce_window` whose jaxpr computes a sum or a maximum."""
    body = [inner.primitive.name for inner in eqn.params["jaxpr"].eqns]
    if (body, start.number) not in ((["add"], 0.0), (["max"], -math.inf)):
        raise unknown(f"'reduce_window' of {body}")
    return _window(eqn, x, is_sum=body == ["add"])


RULES: dict[str, Callable[..., Node]] = {
    "conv_general_dilated": _convolution,
    "reduce_window": _any_window,
    "reduce_window_max": _window,
    "reduce_window_sum": functools.partial(_window, is_sum=True),
}
