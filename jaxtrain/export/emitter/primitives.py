"""How primitives of JAX read as nodes: all but convolutions and windows."""

import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxtrain.export.emitter.graph import (
    Node,
    constant,
    elementwise,
    full,
    plain,
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


def _concatenate(eqn: Any, *inputs: Node) -> Node:
    parts = [
        full(x, atom.aval.shape) for x, atom in zip(inputs, eqn.invars, strict=True)
    ]
    out = eqn.outvars[0].aval
    attributes = {"axis": eqn.params["dimension"]}
    return Node("Concat", tuple(parts), out.shape, out.dtype, attributes)


def slice_of(
    x: Node, starts: tuple[int, ...], stops: tuple[Any, ...], strides: Any = None
) -> Node:
    """Return a part of `x`; dims that are whole may be symbolic."""
    strides = tuple(strides or (1,) * len(x.shape))
    cut = [
        (d, int(start), plain(stop), int(stride))
        for d, (start, stop, stride) in enumerate(
            zip(starts, stops, strides, strict=True)
        )
        if (start, stride) != (0, 1) or stop != x.shape[d]
    ]
    if not cut:
        return x
    shape = list(x.shape)
    for d, start, stop, stride in cut:
        shape[d] = -((start - stop) // stride)
    return Node("Slice", (x,), tuple(shape), x.dtype, {"cut": cut})


def _slice(eqn: Any, x: Node) -> Node:
    p = eqn.params
    x = full(x, eqn.invars[0].aval.shape)
    return slice_of(x, p["start_indices"], p["limit_indices"], p["strides"])


def _gather(eqn: Any, x: Node, indices: Node) -> Node:
    """Read what `x[:, a:b:c]` is where the batch may be any: parts at known places."""
    p, numbers = eqn.params, eqn.params["dimension_numbers"]
    x = full(x, eqn.invars[0].aval.shape)
    out = eqn.outvars[0].aval.shape
    if not indices.is_constant or numbers.operand_batching_dims:
        raise unknown("'gather' by indices that are computed")
    starts, stops, strides = [0] * len(x.shape), list(x.shape), [1] * len(x.shape)
    rows = indices.array.reshape(-1, indices.shape[-1])
    several = None
    for dim, places in zip(numbers.start_index_map, rows.T, strict=True):
        size = p["slice_sizes"][dim]
        starts[dim], stops[dim] = int(places[0]), int(places[0]) + size
        if len(places) > 1 and (places != places[0]).any():
            steps = np.unique(np.diff(places))
            if several is not None or size != 1 or len(steps) != 1 or steps[0] < 1:
                raise unknown("'gather' of what does not lie in a row")
            several, strides[dim] = dim, int(steps[0])
            stops[dim] = int(places[-1]) + 1
    part = slice_of(x, tuple(starts), tuple(stops), strides)
    if several is not None:
        (place,) = (d for d in range(len(out)) if d not in numbers.offset_dims)
        order = [d for d in range(len(x.shape)) if d != several]
        gone = [d for d in numbers.collapsed_slice_dims if d != several]
        order = [d for d in order if d not in gone]
        order.insert(place, several)
        part = transpose(part, (*order, *gone))
    return reshape(part, out)


def split(eqn: Any, x: Node) -> list[Node]:
    """Return the parts of `x`, each as a slice."""
    x = full(x, eqn.invars[0].aval.shape)
    axis, start, parts = eqn.params["axis"], 0, []
    for size in eqn.params["sizes"]:
        starts, stops = [0] * len(x.shape), list(x.shape)
        starts[axis], stops[axis] = start, start + size
        parts.append(slice_of(x, tuple(starts), tuple(stops)))
        start += size
    return parts


def pad(x: Node, sides: list[tuple[int, int]], value: float) -> Node:
    """Return `x` with `value` around it; what is negative is cut off."""
    starts = tuple(max(0, -low) for low, _ in sides)
    stops = tuple(
        size + min(0, high) if high < 0 else size
        for size, (_, high) in zip(x.shape, sides, strict=True)
    )
    x = slice_of(x, starts, stops)
    sides = [(max(0, low), max(0, high)) for low, high in sides]
    if not any(low or high for low, high in sides):
        return x
    shape = tuple(
        n if not (low or high) else n + low + high
        for n, (low, high) in zip(x.shape, sides, strict=True)
    )
    return Node("Pad", (x,), shape, x.dtype, {"sides": sides, "value": value})


def _pad(eqn: Any, x: Node, value: Node) -> Node:
    config = eqn.params["padding_config"]
    if any(interior for _, _, interior in config) or not value.is_constant:
        raise unknown("'pad' between elements")
    x = full(x, eqn.invars[0].aval.shape)
    sides = [(int(low), int(high)) for low, high, _ in config]
    return pad(x, sides, float(value.array))


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
    "concatenate": _concatenate,
    "convert_element_type": _convert,
    "dot_general": _dot,
    "erfc": _erfc,
    "expm1": _expm1,
    "gather": _gather,
    "integer_pow": _integer_pow,
    "log1p": _log1p,
    "ne": _not_equal,
    "pad": _pad,
    "rem": _remainder,
    "reshape": _reshape,
    "rsqrt": _rsqrt,
    "select_n": _select,
    "slice": _slice,
    "square": _square,
    "squeeze": _squeeze,
    "transpose": _transpose,
}
