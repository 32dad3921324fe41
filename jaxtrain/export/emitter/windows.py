"""How convolutions and pools of JAX read as nodes."""

import math
from collections.abc import Callable
from typing import Any

from jaxtrain.export.emitter.graph import (
    Node,
    constant,
    elementwise,
    full,
    transpose,
    unknown,
)
from jaxtrain.export.emitter.parts import pad


def _convolution(eqn: Any, x: Node, kernel: Node) -> Node:
    p, out = eqn.params, eqn.outvars[0].aval
    if p["batch_group_count"] != 1 or any(d != 1 for d in p["lhs_dilation"]):
        raise unknown("a transposed convolution ('conv_general_dilated')")
    if not kernel.is_constant:
        raise unknown("a convolution whose kernel is computed")
    numbers = p["dimension_numbers"]
    x = full(x, eqn.invars[0].aval.shape)
    # (batch, channels, rows, ...) -> (batch, rows, ..., channels)
    batch, channels, *rows = numbers.lhs_spec
    x = transpose(x, (batch, *rows, channels))
    outputs, inputs, *rows = numbers.rhs_spec
    kernel = transpose(kernel, (*rows, inputs, outputs))
    sides = [(0, 0), *p["padding"], (0, 0)]
    cut = [(min(0, low), min(0, high)) for low, high in sides]
    attributes = {
        "strides": tuple(p["window_strides"]),
        "padding": tuple((max(0, low), max(0, high)) for low, high in p["padding"]),
        "dilations": tuple(p["rhs_dilation"]),
        "groups": p["feature_group_count"],
    }
    batch, channels, *rows = numbers.out_spec
    shape = tuple(out.shape[d] for d in (batch, *rows, channels))
    y = Node("Conv", (pad(x, cut, 0.0), kernel), shape, out.dtype, attributes)
    back = [0] * len(shape)
    for place, dim in enumerate((batch, *rows, channels)):
        back[dim] = place
    return transpose(y, tuple(back))


def window(
    op: str, x: Node, size: Any, strides: Any, padding: Any, dilation: Any = None
) -> Node:
    """Return the maximum or the mean (zeros around count) of windows of rows."""
    dilation = tuple(dilation or (1,) * len(size))
    shape = [x.shape[0]]
    for n, k, s, (low, high), d in zip(
        x.shape[1:-1], size, strides, padding, dilation, strict=True
    ):
        shape.append((n + low + high - (k - 1) * d - 1) // s + 1)
    attributes = {
        "size": tuple(size),
        "strides": tuple(strides),
        "padding": tuple(map(tuple, padding)),
        "dilations": dilation,
    }
    return Node(op, (x,), (*shape, x.shape[-1]), x.dtype, attributes)


def _window(eqn: Any, x: Node, kind: str) -> Node:
    p = eqn.params
    x = full(x, eqn.invars[0].aval.shape)
    size, strides = p["window_dimensions"], p["window_strides"]
    padding, dilation = p["padding"], p["window_dilation"]
    whole = len(size) > 2 and size[0] == size[-1] == strides[0] == strides[-1] == 1
    if not whole or any(d != 1 for d in p["base_dilation"]):
        raise unknown("'reduce_window' over batch or channels, or between elements")
    is_sum = kind == "sum"
    # Runtimes refuse windows that lie in the padding alone, and means with holes.
    if any(max(sides) >= k for sides, k in zip(padding, size, strict=True)):
        x = pad(x, list(padding), 0.0 if is_sum else -math.inf)
        padding = ((0, 0),) * len(size)
    op = "AveragePool" if is_sum else "MaxPool"
    if is_sum and any(d != 1 for d in dilation):
        raise unknown("sums over windows with holes")
    inner = slice(1, -1)
    y = window(op, x, size[inner], strides[inner], padding[inner], dilation[inner])
    if not is_sum:
        return y
    return elementwise("Mul", y, constant(float(math.prod(size)), x.dtype))


def _any_window(eqn: Any, x: Node, start: Node) -> Node:
    """Read a window whose function is a jaxpr: a sum or a maximum."""
    body = [inner.primitive.name for inner in eqn.params["jaxpr"].eqns]
    for name, function, neutral in (("sum", "add", 0.0), ("max", "max", -math.inf)):
        if body == [function] and start.is_constant and start.array == neutral:
            return _window(eqn, x, name)
    raise unknown(f"'reduce_window' of {body}")


def _named_window(eqn: Any, x: Node) -> Node:
    return _window(eqn, x, eqn.primitive.name.removeprefix("reduce_window_"))


RULES: dict[str, Callable[..., Node]] = {
    "conv_general_dilated": _convolution,
    "reduce_window": _any_window,
    "reduce_window_max": _named_window,
    "reduce_window_sum": _named_window,
}
