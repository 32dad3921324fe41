"""How primitives of JAX that take arrays apart, and join them, read as nodes."""

from collections.abc import Callable
from typing import Any

import numpy as np

from jaxtrain.export.emitter.graph import (
    Node,
    full,
    plain,
    reshape,
    transpose,
    unknown,
)


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


RULES: dict[str, Callable[..., Node]] = {
    "concatenate": _concatenate,
    "gather": _gather,
    "pad": _pad,
    "slice": _slice,
}
