"""How primitives of JAX read as nodes: on elements, dims, and products."""

import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxtrain.export.emitter.graph import (
    Node,
    constant,
    elementwise,
    full,
    reshape,
    transpose,
    unknown,
)

# Same meaning, element by element.
SAME = {
    "abs": "Abs",
    "add": "Add",
    "add_any": "Add",
    "and": "And",
    "ceil": "Ceil",
    "cos": "Cos",
    "div": "Div",
    "eq": "Equal",
    "erf": "Erf",
    "exp": "Exp",
    "floor": "Floor",
    "ge": "GreaterOrEqual",
    "gt": "Greater",
    "le": "LessOrEqual",
    "log": "Log",
    "logistic": "Sigmoid",
    "lt": "Less",
    "max": "Max",
    "min": "Min",
    "mul": "Mul",
    "neg": "Neg",
    "not": "Not",
    "or": "Or",
    "pow": "Pow",
    "sign": "Sign",
    "sin": "Sin",
    "sqrt": "Sqrt",
    "sub": "Sub",
    "tan": "Tan",
    "tanh": "Tanh",
}
REDUCTIONS = {
    "reduce_sum": "ReduceSum",
    "reduce_max": "ReduceMax",
    "reduce_min": "ReduceMin",
    "reduce_prod": "ReduceProd",
}
# Of constants, they are not computed in the constant's dtype, which may be less precise
# than the value.
KEEP_PRECISION = ("convert_element_type", "reshape", "transpose", "broadcast_in_dim")


def _same(eqn: Any, *inputs: Node) -> Node:
    op = SAME[eqn.primitive.name]
    dtype = eqn.outvars[0].aval.dtype
    if op in ("And", "Or", "Not") and dtype != np.bool_:
        raise unknown(f"{eqn.primitive.name!r} of integers")
    return elementwise(op, *inputs, dtype=dtype)


def _like(x: Node, number: float) -> Node:
    return constant(np.asarray(number, np.float64), x.dtype)


def _not_equal(eqn: Any, x: Node, y: Node) -> Node:
    return elementwise("Not", elementwise("Equal", x, y, dtype=bool))


def _erfc(eqn: Any, x: Node) -> Node:
    return elementwise("Sub", _like(x, 1), elementwise("Erf", x))


def _expm1(eqn: Any, x: Node) -> Node:
    return elementwise("Sub", elementwise("Exp", x), _like(x, 1))


def _log1p(eqn: Any, x: Node) -> Node:
    return elementwise("Log", elementwise("Add", x, _like(x, 1)))


def _rsqrt(eqn: Any, x: Node) -> Node:
    return elementwise("Reciprocal", elementwise("Sqrt", x))


def _square(eqn: Any, x: Node) -> Node:
    return elementwise("Mul", x, x)


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
        raise unknown("'round' of halves away from zero")
    return elementwise("Round", x)


def _remainder(eqn: Any, x: Node, y: Node) -> Node:
    return elementwise("Mod", x, y, fmod=1)


def _clamp(eqn: Any, low: Node, x: Node, high: Node) -> Node:
    return elementwise("Min", elementwise("Max", x, low), high)


def _select(eqn: Any, which: Node, *cases: Node) -> Node:
    if len(cases) != 2 or which.dtype != np.bool_:
        raise unknown(f"'select_n' of {len(cases)} cases")
    return elementwise("Where", which, cases[1], cases[0], dtype=cases[0].dtype)


def cast(x: Node, dtype: Any) -> Node:
    """Return `x` in another dtype. Floats stay as precise as they are in constants."""
    if x.dtype == dtype:
        return x
    if x.is_constant:
        precise = x.is_float and jnp.issubdtype(dtype, jnp.floating)
        value = x.array if precise else x.array.astype(dtype)
        return constant(value, dtype)
    return elementwise("Cast", x, dtype=dtype)


def _convert(eqn: Any, x: Node) -> Node:
    return cast(x, eqn.params["new_dtype"])


def _reshape(eqn: Any, x: Node) -> Node:
    if eqn.params.get("dimensions") is not None:
        raise unknown("'reshape' of a transposed array")
    return reshape(full(x, eqn.invars[0].aval.shape), eqn.outvars[0].aval.shape)


def _squeeze(eqn: Any, x: Node) -> Node:
    dims = [d % len(x.shape) for d in eqn.params["dimensions"]]
    return reshape(x, tuple(n for d, n in enumerate(x.shape) if d not in dims))


def _broadcast(eqn: Any, x: Node, *_: Node) -> Node:
    """Insert dims of 1, which stand for any number until `full` is asked for."""
    shape = [1] * len(eqn.params["shape"])
    for size, dim in zip(x.shape, eqn.params["broadcast_dimensions"], strict=True):
        shape[dim] = size
    return reshape(x, tuple(shape))


def _transpose(eqn: Any, x: Node) -> Node:
    return transpose(x, tuple(eqn.params["permutation"]))


def _reduce(eqn: Any, x: Node) -> Node:
    x = full(x, eqn.invars[0].aval.shape)
    out = eqn.outvars[0].aval
    attributes = {"axes": tuple(eqn.params["axes"]), "keepdims": False}
    return Node(REDUCTIONS[eqn.primitive.name], (x,), out.shape, out.dtype, attributes)


def _arg_reduce(eqn: Any, x: Node) -> Node:
    x = full(x, eqn.invars[0].aval.shape)
    op = {"argmax": "ArgMax", "argmin": "ArgMin"}[eqn.primitive.name]
    out = eqn.outvars[0].aval
    attributes = {"axes": tuple(eqn.params["axes"]), "keepdims": False}
    index = Node(op, (x,), out.shape, np.dtype(np.int64), attributes)
    return cast(index, out.dtype)


def _dot(eqn: Any, x: Node, y: Node) -> Node:
    """Multiply matrices: (batch, free, contracted) by (batch, contracted, free)."""
    (x_inner, y_inner), (x_batch, y_batch) = eqn.params["dimension_numbers"]
    out = eqn.outvars[0].aval
    # Sums are kept in the dtype of the result.
    x = cast(full(x, eqn.invars[0].aval.shape), out.dtype)
    y = cast(full(y, eqn.invars[1].aval.shape), out.dtype)
    x_free = [d for d in range(len(x.shape)) if d not in (*x_inner, *x_batch)]
    y_free = [d for d in range(len(y.shape)) if d not in (*y_inner, *y_batch)]
    inner = math.prod(x.shape[d] for d in x_inner)
    y_last = math.prod(y.shape[d] for d in y_free)
    batch = tuple(x.shape[d] for d in x_batch)
    x = transpose(x, (*x_batch, *x_free, *x_inner))
    y = transpose(y, (*y_batch, *y_inner, *y_free))
    y = reshape(y, (*batch, inner, y_last))
    rows = tuple(x.shape[len(batch) : len(batch) + len(x_free)])
    if batch or not rows:  # one dim of rows, as y has
        rows = (math.prod(rows),)
    x = reshape(x, (*batch, *rows, inner))
    product = Node("MatMul", (x, y), (*batch, *rows, y_last), out.dtype)
    return reshape(product, out.shape)


RULES: dict[str, Callable[..., Node]] = {
    **dict.fromkeys(SAME, _same),
    **dict.fromkeys(REDUCTIONS, _reduce),
    "argmax": _arg_reduce,
    "argmin": _arg_reduce,
    "broadcast_in_dim": _broadcast,
    "clamp": _clamp,
    "convert_element_type": _convert,
    "dot_general": _dot,
    "erfc": _erfc,
    "expm1": _expm1,
    "integer_pow": _integer_pow,
    "log1p": _log1p,
    "ne": _not_equal,
    "rem": _remainder,
    "reshape": _reshape,
    "round": _round,
    "rsqrt": _rsqrt,
    "select_n": _select,
    "square": _square,
    "squeeze": _squeeze,
    "transpose": _transpose,
}
