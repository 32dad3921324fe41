"""Conversion of JAX primitives on arrays: slices, reductions and products."""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxtrain.plugins.onnx.emitter.graph import (
    Node,
    cast,
    plain,
    reshape,
    transpose,
    unknown,
)

REDUCTIONS = {
    "reduce_sum": "ReduceSum",
    "reduce_max": "ReduceMax",
    "reduce_min": "ReduceMin",
    "reduce_prod": "ReduceProd",
}


def _concatenate(eqn: Any, *inputs: Node) -> Node:
    out = eqn.outvars[0].aval
    attributes = {"axis": eqn.params["dimension"]}
    return Node("Concat", inputs, out.shape, out.dtype, attributes)


def _stack(eqn: Any, *inputs: Node) -> Node:
    out, axis = eqn.outvars[0].aval, eqn.params["axis"]
    shape = (*out.shape[:axis], 1, *out.shape[axis + 1 :])
    parts = tuple(reshape(x, shape) for x in inputs)
    return Node("Concat", parts, out.shape, out.dtype, {"axis": axis})


def slice_of(
    x: Node, starts: Sequence[int], stops: Sequence[Any], strides: Any = None
) -> Node:
    """Slice `x`; unsliced dims may be symbolic."""
    ends = zip(starts, stops, strides or [1] * len(x.shape), strict=True)
    cut = [
        (d, int(start), plain(stop), int(stride))
        for d, (start, stop, stride) in enumerate(ends)
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
    return slice_of(x, p["start_indices"], p["limit_indices"], p["strides"])


def _gather(eqn: Any, x: Node, indices: Node) -> Node:
    """Convert a gather that is equivalent to a slice, such as `x[:, a:b:c]`.

    JAX emits a gather for such slices if the batch is symbolic.
    """
    p, numbers = eqn.params, eqn.params["dimension_numbers"]
    out = eqn.outvars[0].aval.shape
    if not indices.is_constant or numbers.operand_batching_dims:
        raise unknown("'gather' with computed indices")
    starts, stops, strides = [0] * len(x.shape), list(x.shape), [1] * len(x.shape)
    rows = indices.value.reshape(-1, indices.shape[-1])
    several = None
    for dim, places in zip(numbers.start_index_map, rows.T, strict=True):
        size = p["slice_sizes"][dim]
        starts[dim], stops[dim] = int(places[0]), int(places[0]) + size
        if len(places) > 1 and (places != places[0]).any():
            steps = np.unique(np.diff(places))
            if several is not None or size != 1 or len(steps) != 1 or steps[0] < 1:
                raise unknown("'gather' of unevenly spaced elements")
            several, strides[dim] = dim, int(steps[0])
            stops[dim] = int(places[-1]) + 1
    part = slice_of(x, starts, stops, strides)
    if several is not None:
        (place,) = (d for d in range(len(out)) if d not in numbers.offset_dims)
        gone = [d for d in numbers.collapsed_slice_dims if d != several]
        order = [d for d in range(len(x.shape)) if d not in (several, *gone)]
        order.insert(place, several)
        part = transpose(part, (*order, *gone))
    return reshape(part, out)


def _split(eqn: Any, x: Node) -> list[Node]:
    axis, sizes, parts = eqn.params["axis"], eqn.params["sizes"], []
    for size, stop in zip(sizes, itertools.accumulate(sizes), strict=True):
        starts, stops = [0] * len(x.shape), list(x.shape)
        starts[axis], stops[axis] = stop - size, stop
        parts.append(slice_of(x, starts, stops))
    return parts


def pad(x: Node, sides: Sequence[tuple[int, int]], value: float) -> Node:
    """Pad `x` with `value`; negative padding crops."""
    starts = [max(0, -low) for low, _ in sides]
    stops = [n + min(0, high) for n, (_, high) in zip(x.shape, sides, strict=True)]
    x = slice_of(x, starts, stops)
    sides = [(max(0, low), max(0, high)) for low, high in sides]
    if not any(map(any, sides)):
        return x
    shape = [n + low + high for n, (low, high) in zip(x.shape, sides, strict=True)]
    attributes = {"sides": sides, "value": value}
    return Node("Pad", (x,), tuple(shape), x.dtype, attributes)


def _pad(eqn: Any, x: Node, value: Node) -> Node:
    config = eqn.params["padding_config"]
    if any(interior for _, _, interior in config) or not value.is_constant:
        raise unknown("'pad' with interior padding or a computed value")
    sides = [(int(low), int(high)) for low, high, _ in config]
    return pad(x, sides, float(value.value))


def _reshape(eqn: Any, x: Node) -> Node:
    if eqn.params.get("dimensions") is not None:
        raise unknown("'reshape' of a transposed array")
    return reshape(x, eqn.outvars[0].aval.shape)


def _reduce(eqn: Any, x: Node) -> Node:
    op, out = REDUCTIONS[eqn.primitive.name], eqn.outvars[0].aval
    attributes = {"axes": tuple(eqn.params["axes"]), "keepdims": False}
    return Node(op, (x,), out.shape, out.dtype, attributes)


def _arg(eqn: Any, x: Node) -> Node:
    """Convert argmax or argmin."""
    op = {"argmax": "ArgMax", "argmin": "ArgMin"}[eqn.primitive.name]
    out, (axis,) = eqn.outvars[0].aval, eqn.params["axes"]
    attributes = {"axis": axis, "keepdims": 0}
    return cast(Node(op, (x,), out.shape, np.dtype(np.int64), attributes), out.dtype)


def _dot(eqn: Any, x: Node, y: Node) -> Node:
    """Convert `dot_general` to MatMul, with transposes and reshapes of its inputs."""
    (x_inner, y_inner), (x_batch, y_batch) = eqn.params["dimension_numbers"]
    out = eqn.outvars[0].aval
    # Accumulate in the dtype of the result.
    x, y = cast(x, out.dtype), cast(y, out.dtype)
    x_free = [d for d in range(len(x.shape)) if d not in (*x_inner, *x_batch)]
    y_free = [d for d in range(len(y.shape)) if d not in (*y_inner, *y_batch)]
    batch, rows, inner, last = (
        tuple(array.shape[d] for d in dims)
        for array, dims in ((x, x_batch), (x, x_free), (x, x_inner), (y, y_free))
    )
    inner, last = math.prod(inner), math.prod(last)
    x = transpose(x, (*x_batch, *x_free, *x_inner))
    y = transpose(y, (*y_batch, *y_inner, *y_free))
    if batch or not rows:  # With batch dims, MatMul takes one dim of rows.
        rows = (math.prod(rows),)
    inputs = reshape(x, (*batch, *rows, inner)), reshape(y, (*batch, inner, last))
    return reshape(Node("MatMul", inputs, (*batch, *rows, last), out.dtype), out.shape)


RULES: dict[str, Callable[..., Node | list[Node]]] = {
    **dict.fromkeys(REDUCTIONS, _reduce),
    "argmax": _arg,
    "argmin": _arg,
    "concatenate": _concatenate,
    "dot_general": _dot,
    "gather": _gather,
    "pad": _pad,
    "reshape": _reshape,
    "slice": _slice,
    "split": _split,
    "stack": _stack,
}
