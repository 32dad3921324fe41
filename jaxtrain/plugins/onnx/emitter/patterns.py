"""Patterns that fuse JAX's decompositions into ONNX operators."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from jaxtrain.plugins.onnx.emitter.graph import Node, constant, elementwise

# A pattern is a tuple (operator, *input patterns), a number that matches a constant, or
# a name that matches any node, but the same node at each occurrence.
ERF = ("Add", ("Erf", ("Mul", "x", math.sqrt(0.5))), 1.0)
# "Mean" is over the last dim, with keepdims.
CENTRED = ("Sub", "x", ("Mean", "x"))
VARIANCE = ("Mean", ("Mul", CENTRED, CENTRED))
DEVIATION = ("Reciprocal", ("Sqrt", ("Add", VARIANCE, "epsilon")))
NORMS = (("Mul", CENTRED, ("Mul", DEVIATION, "scale")), ("Mul", CENTRED, DEVIATION))
# Pattern -> (operator to apply to x, its attributes).
OPERATORS: dict[Any, tuple[str, dict[str, float]]] = {
    ("Max", "x", 0.0): ("Relu", {}),
    ("Mul", ("Clip", ("Add", "x", 3.0), 0.0, 6.0), 1 / 6): (
        "HardSigmoid",
        {"alpha": 1 / 6, "beta": 0.5},
    ),
    ("Mul", "x", ("HardSigmoid", "x")): ("HardSwish", {}),
    ("Mul", "x", ("Mul", ERF, 0.5)): ("Gelu", {}),
    ("Mul", ("Mul", "x", 0.5), ERF): ("Gelu", {}),
}


def find(
    pattern: Any, node: Node, known: dict[str, Node] | None = None
) -> dict[str, Node] | None:
    """Match a pattern to a node; return matched nodes by name, or None if no match."""
    known = known or {}
    if isinstance(pattern, str):
        return {**known, pattern: node} if known.get(pattern, node) is node else None
    if isinstance(pattern, float):
        # Constants are rounded to the model's dtype.
        precision = 1e-2 if node.dtype.itemsize < 4 else 1e-6
        number = math.nan if node.number is None else node.number
        return known if math.isclose(number, pattern, rel_tol=precision) else None
    op, *parts = pattern
    if op != ("Mean" if _is_mean(node) else node.op):
        return None
    for step in (1, -1) if op in ("Add", "Mul") else (1,):
        found: dict[str, Node] | None = known
        for part, x in zip(parts, node.inputs[::step], strict=True):
            found = None if found is None else find(part, x, found)
        if found is not None:
            return found
    return None


def _is_mean(node: Node) -> bool:
    last = {"axes": (len(node.shape) - 1,), "keepdims": True}
    return node.op == "ReduceMean" and node.attributes == last


def _operator(node: Node) -> Node | None:
    for pattern, (op, attributes) in OPERATORS.items():
        if node.is_float and (found := find(pattern, node)):
            return elementwise(op, found["x"], **attributes)
    return None


def _clip(node: Node) -> Node | None:
    """Fuse Min(Max(x, low), high) into Clip."""
    if node.op != "Min" or not node.is_float:
        return None
    x, high = node.inputs
    if x.uses > 1 or x.op not in ("Relu", "Max"):
        return None
    low = 0.0 if x.op == "Relu" else x.inputs[1].number
    if low is None or high.number is None:
        return None
    ends = (constant(np.float64(end), node.dtype) for end in (low, high.number))
    return elementwise("Clip", x.inputs[0], *ends)


def _max_pool_of_blocks(node: Node) -> Node | None:
    """Replace a reshape and a maximum over the resulting blocks by MaxPool."""
    if node.op != "ReduceMax" or node.attributes["keepdims"]:
        return None
    x = node.inputs[0]
    if x.op != "Reshape" or x.uses > 1 or len(x.shape) != 6:
        return None
    images = x.inputs[0]
    batch, rows, height, columns, width, channels = x.shape
    blocks = (batch, rows * height, columns * width, channels)
    if node.attributes["axes"] != (2, 4) or images.shape != blocks:
        return None
    size = [height, width]
    if (
        images.op == "Slice"
        and images.uses == 1
        and _drops_incomplete_windows(images, size)
    ):
        images = images.inputs[0]
    attributes = {"kernel_shape": size, "strides": size, "pads": [0] * 4}
    return Node("MaxPool", (images,), node.shape, node.dtype, attributes)


def _drops_incomplete_windows(node: Node, size: list[int]) -> bool:
    """Whether a slice drops only incomplete windows, as pooling does."""
    whole = node.inputs[0].shape
    return all(
        d in (1, 2) and start == 0 and stride == 1 and whole[d] - stop < size[d - 1]
        for d, start, stop, stride in node.attributes["cut"]
    )


def _mean_without_padding(node: Node) -> Node | None:
    """Fuse the correction for padding into AveragePool, as `count_include_pad=0`."""
    if node.op != "Mul" or not node.inputs[1].is_constant:
        return None
    (pool, factor), a = node.inputs, node.inputs[0].attributes
    if pool.op != "AveragePool" or pool.uses > 1:
        return None
    if not a["count_include_pad"] or not any(a["pads"]):
        return None
    size, counts = a["kernel_shape"], np.ones(())
    sides = a["pads"][: len(size)], a["pads"][len(size) :]
    for n, k, s, low, high in zip(
        pool.inputs[0].shape[1:-1], size, a["strides"], *sides, strict=True
    ):
        inside = np.pad(np.ones(n), (low, high))
        dim = [inside[i : i + k].sum() for i in range(0, len(inside) - k + 1, s)]
        counts = np.multiply.outer(counts, dim)
    wanted = math.prod(size) / counts[None, ..., None]
    if factor.shape != wanted.shape or not np.allclose(factor.value, wanted, rtol=1e-6):
        return None
    return replace(pool, attributes={**a, "count_include_pad": 0})


def _layer_norm(node: Node) -> Node | None:
    """Fuse (x - mean) * (rsqrt(variance + epsilon) * scale) into LayerNormalization."""
    found = find(NORMS[0], node) or find(NORMS[1], node)
    if found is None or (epsilon := found["epsilon"].number) is None:
        return None
    x, scale = found["x"], found.get("scale", constant(np.ones(()), node.dtype))
    if not scale.is_constant or any(n != 1 for n in scale.shape[:-1]):
        return None
    flat = np.broadcast_to(scale.value.reshape(-1), (x.shape[-1],))
    inputs = x, constant(flat, x.dtype), constant(np.zeros(flat.shape), x.dtype)
    attributes = {"axis": -1, "epsilon": epsilon}
    return Node("LayerNormalization", inputs, x.shape, x.dtype, attributes)


def scale_and_shift(node: Node) -> Node | None:
    """Fuse x * scale + shift per channel into a BatchNormalization node."""
    if node.op != "Add" or not node.is_float or len(node.shape) < 3:
        return None
    scaled, shift = node.inputs
    if scaled.op != "Mul" or scaled.uses > 1 or not shift.is_constant:
        return None
    x, scale = scaled.inputs
    numbers = (*[1] * (len(node.shape) - 1), node.shape[-1])
    if not scale.is_constant or x.shape != node.shape:
        return None
    if scale.shape != numbers or shift.shape not in (numbers, ()):
        return None
    flat = [
        constant(np.broadcast_to(c.value.reshape(-1), numbers[-1:]), node.dtype)
        for c in (scale, shift)
    ]
    return Node("BatchNormalization", (x, *flat), node.shape, node.dtype)


RULES: tuple[Callable[[Node], Node | None], ...] = (
    _clip,
    _operator,
    _max_pool_of_blocks,
    _mean_without_padding,
    _layer_norm,
)
