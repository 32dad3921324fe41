"""Conversion of elementwise and shape primitives of JAX.

Broadcasts are delayed: a dim may have size 1 in place of its size in JAX, until `full`
broadcasts it.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from jax import lax

from jaxtrain.plugins.onnx.emitter.graph import (
    Node,
    cast,
    constant,
    elementwise,
    reshape,
    transpose,
    unknown,
)

# Primitives with an ONNX operator of the same semantics; most have the same name.
NAMES = (
    "abs add and ceil cos div erf exp floor log max min mul neg not or pow sign sin "
    "sqrt sub tan tanh"
)
SAME = {name: name.capitalize() for name in NAMES.split()} | {
    "add_any": "Add",
    "eq": "Equal",
    "ge": "GreaterOrEqual",
    "gt": "Greater",
    "le": "LessOrEqual",
    "logistic": "Sigmoid",
    "lt": "Less",
}


def _same(eqn: Any, *inputs: Node) -> Node:
    op, dtype = SAME[eqn.primitive.name], eqn.outvars[0].aval.dtype
    if op in ("And", "Or", "Not") and dtype != np.bool_:
        raise unknown(f"{eqn.primitive.name!r} of integers")
    if op in ("Max", "Min") and dtype == np.bool_:
        raise unknown("the maximum of booleans")
    return elementwise(op, *inputs, dtype=dtype)


def _like(x: Node, number: float) -> Node:
    return constant(np.float64(number), x.dtype)


def _integer_pow(eqn: Any, x: Node) -> Node:
    power = eqn.params["y"]
    if power in (2, 3):
        square = elementwise("Mul", x, x)
        return square if power == 2 else elementwise("Mul", square, x)
    if power == -1:
        return elementwise("Reciprocal", x)
    return elementwise("Pow", x, _like(x, power))


def _round(eqn: Any, x: Node) -> Node:
    if eqn.params["rounding_method"] != lax.RoundingMethod.TO_NEAREST_EVEN:
        raise unknown("'round' with halves rounded away from zero")
    return elementwise("Round", x)


def _select(eqn: Any, which: Node, *cases: Node) -> Node:
    if len(cases) != 2 or which.dtype != np.bool_:
        raise unknown(f"'select_n' of {len(cases)} cases")
    return elementwise("Where", which, cases[1], cases[0], dtype=cases[0].dtype)


def _squeeze(eqn: Any, x: Node) -> Node:
    dims = [d % len(x.shape) for d in eqn.params["dimensions"]]
    return reshape(x, tuple(n for d, n in enumerate(x.shape) if d not in dims))


def _broadcast(eqn: Any, x: Node, *_: Node) -> Node:
    """Insert dims of size 1, which `full` broadcasts later."""
    shape = [1] * len(eqn.params["shape"])
    for size, dim in zip(x.shape, eqn.params["broadcast_dimensions"], strict=True):
        shape[dim] = size
    return reshape(x, tuple(shape))


RULES: dict[str, Callable[..., Node]] = {
    **dict.fromkeys(SAME, _same),
    "broadcast_in_dim": _broadcast,
    "clamp": lambda _, low, x, high: elementwise(
        "Min", elementwise("Max", x, low), high
    ),
    "convert_element_type": lambda eqn, x: cast(x, eqn.params["new_dtype"]),
    "erfc": lambda _, x: elementwise("Sub", _like(x, 1), elementwise("Erf", x)),
    "expm1": lambda _, x: elementwise("Sub", elementwise("Exp", x), _like(x, 1)),
    "integer_pow": _integer_pow,
    "log1p": lambda _, x: elementwise("Log", elementwise("Add", x, _like(x, 1))),
    "ne": lambda _, x, y: elementwise("Not", elementwise("Equal", x, y, dtype=bool)),
    "rem": lambda _, x, y: elementwise("Mod", x, y, fmod=1),
    "round": _round,
    "rsqrt": lambda _, x: elementwise("Reciprocal", elementwise("Sqrt", x)),
    "select_n": _select,
    "square": lambda _, x: elementwise("Mul", x, x),
    "squeeze": _squeeze,
    "transpose": lambda eqn, x: transpose(x, tuple(eqn.params["permutation"])),
}
