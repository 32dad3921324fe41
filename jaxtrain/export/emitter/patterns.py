"""Operators that ONNX has, in the forms that JAX gives them."""

import math
from collections.abc import Callable

import numpy as np

from jaxtrain.export.emitter.graph import Node, constant, elementwise
from jaxtrain.export.emitter.windows import window


def _number(node: Node) -> float | None:
    """Return the one number that a constant is, or None."""
    if node.is_constant and node.array.size == 1:
        return float(node.array.item())
    return None


def _by(node: Node, op: str, number: float) -> Node | None:
    """Return x of `op(x, number)`."""
    if node.op != op or len(node.inputs) != 2:
        return None
    found = _number(node.inputs[1])
    # Numbers are written in the dtype of the model.
    precision = 1e-2 if node.dtype.itemsize < 4 else 1e-6
    if found is None or not math.isclose(found, number, rel_tol=precision):
        return None
    return node.inputs[0]


def _clip(node: Node) -> Node | None:
    """max(x, 0) is Relu; the minimum of a maximum is Clip."""
    if node.op == "Max" and node.is_float and _number(node.inputs[1]) == 0:
        return elementwise("Relu", node.inputs[0])
    if node.op != "Min" or not node.is_float:
        return None
    x, high = node.inputs[0], _number(node.inputs[1])
    if high is None or x.uses > 1 or x.op not in ("Relu", "Max"):
        return None
    low = 0.0 if x.op == "Relu" else _number(x.inputs[1])
    return None if low is None else elementwise("Clip", x.inputs[0], low=low, high=high)


def _hard_sigmoid(node: Node) -> Node | None:
    """clip(x + 3, 0, 6) / 6 is HardSigmoid."""
    x = _by(node, "Mul", 1 / 6)
    if x is None or x.op != "Clip" or x.uses > 1:
        return None
    inner = _by(x.inputs[0], "Add", 3)
    if inner is None or (x.attributes["low"], x.attributes["high"]) != (0, 6):
        return None
    return elementwise("HardSigmoid", inner)


def _hard_swish(node: Node) -> Node | None:
    """x * hard_sigmoid(x) is HardSwish."""
    if node.op != "Mul":
        return None
    for x, gate in (node.inputs, node.inputs[::-1]):
        if gate.op == "HardSigmoid" and gate.uses == 1 and gate.inputs[0] is x:
            return elementwise("HardSwish", x)
    return None


def _gelu(node: Node) -> Node | None:
    """x / 2 * (erf(x / sqrt(2)) + 1), in any order, is Gelu."""
    if node.op != "Mul":
        return None
    for x, gate in (node.inputs, node.inputs[::-1]):
        half = _by(gate, "Mul", 0.5)  # x * ((erf + 1) / 2)
        if half is not None:
            gate = half
        else:
            inner = _by(x, "Mul", 0.5)
            if inner is None:
                continue
            x = inner
        erf = _by(gate, "Add", 1)
        if erf is not None and erf.op == "Erf":
            inner = _by(erf.inputs[0], "Mul", math.sqrt(0.5))
            if inner is x:
                return elementwise("Gelu", x)
    return None


def _window_of_blocks(node: Node) -> Node | None:
    """The maximum of each block, with the blocks as dims of a reshape, is a pool."""
    if node.op != "ReduceMax" or node.attributes["keepdims"]:
        return None
    x = node.inputs[0]
    if x.op != "Reshape" or x.uses > 1 or len(x.shape) != 6:
        return None
    images = x.inputs[0]
    batch, rows, height, columns, width, channels = x.shape
    blocks = (batch, rows * height, columns * width, channels)
    if node.attributes["axes"] != (2, 4) or tuple(images.shape) != blocks:
        return None
    size = (height, width)
    if images.op == "Slice" and images.uses == 1 and _cuts_ends(images, size):
        images = images.inputs[0]
    return window("MaxPool", images, size, size, ((0, 0), (0, 0)))


def _cuts_ends(node: Node, size: tuple[int, int]) -> bool:
    """Return whether a slice leaves less than a window out: so does a pool."""
    whole = node.inputs[0].shape[1:3]
    rest = [n - m for n, m in zip(whole, node.shape[1:3], strict=True)]
    cut = node.attributes["cut"]
    return all(
        d in (1, 2) and start == 0 and stride == 1 for d, start, _, stride in cut
    ) and all(r < k for r, k in zip(rest, size, strict=True))


def _padding_left_out(node: Node) -> Node | None:
    """Means of windows over what is not padding."""
    if node.op != "Mul" or not node.inputs[1].is_constant:
        return None
    pool, factor = node.inputs
    if pool.op != "AveragePool" or pool.uses > 1 or "partial" in pool.attributes:
        return None
    a = pool.attributes
    if not any(map(any, a["padding"])):
        return None
    counts = np.ones(())
    for n, k, s, (low, high) in zip(
        pool.inputs[0].shape[1:-1], a["size"], a["strides"], a["padding"], strict=True
    ):
        inside = np.pad(np.ones(n), (low, high))
        dim = [inside[i : i + k].sum() for i in range(0, n + low + high - k + 1, s)]
        counts = np.multiply.outer(counts, dim)
    wanted = math.prod(a["size"]) / counts[None, ..., None]
    given = factor.array
    if given.shape != wanted.shape or not np.allclose(given, wanted, rtol=1e-6):
        return None
    attributes = {**a, "partial": True}
    return Node("AveragePool", pool.inputs, pool.shape, pool.dtype, attributes)


def _layer_norm(node: Node) -> Node | None:
    """(x - mean) * (rsqrt(variance + epsilon) * scale) over the last dim."""
    if node.op != "Mul":
        return None
    for centred, factor in (node.inputs, node.inputs[::-1]):
        scale = constant(np.ones(()), node.dtype)
        if factor.op == "Mul" and factor.inputs[1].is_constant:
            factor, scale = factor.inputs
        found = _normalised(centred, factor)
        if found is None:
            continue
        x, epsilon = found
        if any(n != 1 for n in scale.shape[:-1]):
            return None
        flat = np.broadcast_to(scale.array.reshape(-1), (x.shape[-1],))
        parts = constant(flat, x.dtype), constant(np.zeros(flat.shape), x.dtype)
        attributes = {"epsilon": epsilon}
        return Node("LayerNormalization", (x, *parts), x.shape, x.dtype, attributes)
    return None


def _layer_norm_bias(node: Node) -> Node | None:
    """What is added after a layer norm is its bias."""
    if node.op != "Add" or not node.inputs[1].is_constant:
        return None
    norm, more = node.inputs
    if norm.op != "LayerNormalization" or norm.uses > 1:
        return None
    x, scale, bias = norm.inputs
    if any(n != 1 for n in more.shape[:-1]):
        return None
    total = constant(bias.array + more.array.reshape(-1), bias.dtype)
    inputs = (x, scale, constant(np.broadcast_to(total.array, scale.shape), bias.dtype))
    return Node(norm.op, inputs, norm.shape, norm.dtype, norm.attributes)


def _normalised(centred: Node, factor: Node) -> tuple[Node, float] | None:
    """Return x and epsilon of `(x - mean)` and `rsqrt(variance + epsilon)`."""
    if (
        factor.op != "Reciprocal"
        or factor.inputs[0].op != "Sqrt"
        or centred.op != "Sub"
    ):
        return None
    shifted = factor.inputs[0].inputs[0]
    x, mean = centred.inputs
    if shifted.op != "Add" or (epsilon := _number(shifted.inputs[1])) is None:
        return None
    variance = shifted.inputs[0]
    if not (_mean_of(mean) is x and (squared := _mean_of(variance)) is not None):
        return None
    if squared.op != "Mul" or squared.inputs[0] is not squared.inputs[1]:
        return None
    difference = squared.inputs[0]
    same = difference.op == "Sub" and difference.inputs[0] is x
    if same and _mean_of(difference.inputs[1]) is x:
        return x, epsilon
    return None


def _mean_of(node: Node) -> Node | None:
    """Return what a mean over the last dim, which is kept, is of."""
    if node.op == "ReduceMean" and node.attributes["keepdims"]:
        x = node.inputs[0]
        if node.attributes["axes"] == (len(x.shape) - 1,):
            return x
    return None


def scale_and_shift(node: Node) -> Node | None:
    """x * scale + shift of each channel: a norm in evaluation."""
    if node.op != "Add" or not node.is_float or len(node.shape) < 3:
        return None
    scaled, shift = node.inputs
    if scaled.op != "Mul" or scaled.uses > 1 or not shift.is_constant:
        return None
    x, scale = scaled.inputs
    numbers = (*[1] * (len(node.shape) - 1), node.shape[-1])
    if not scale.is_constant or tuple(x.shape) != tuple(node.shape):
        return None
    if scale.shape != numbers or shift.shape not in (numbers, ()):
        return None
    flat = [
        constant(np.broadcast_to(c.array.reshape(-1), numbers[-1:]), node.dtype)
        for c in (scale, shift)
    ]
    return Node("BatchNormalization", (x, *flat), node.shape, node.dtype)


RULES: tuple[Callable[[Node], Node | None], ...] = (
    _clip,
    _hard_sigmoid,
    _hard_swish,
    _gelu,
    _window_of_blocks,
    _padding_left_out,
    _layer_norm,
    _layer_norm_bias,
)
