"""Writing of ONNX operators, and their layouts.

ONNX's convolution and pooling operators are NCHW. The operators after them keep this
layout, and transposes are written only before operators that need another layout: in a
ResNet, only the input is transposed.
"""

import math
from collections.abc import Callable
from typing import Any

from jaxtrain.plugins.onnx.emitter.arrays import REDUCTIONS
from jaxtrain.plugins.onnx.emitter.detect import DETECT, write_detect
from jaxtrain.plugins.onnx.emitter.graph import (
    Node,
    constant,
    count_uses,
    ordered,
    unknown,
)
from jaxtrain.plugins.onnx.emitter.integers import ROUND, write_round, write_weights
from jaxtrain.plugins.onnx.emitter.windows import pads_of
from jaxtrain.plugins.onnx.emitter.write import (
    Order,
    Writer,
    channels_first,
    filled,
    straight,
)

# Name of a written array, and its dim order.
Written = tuple[str, Order]

# First opset in which all reductions take axes as an input.
OPSET_AXES = 18
GLOBAL_POOLS = {"ReduceMean": "GlobalAveragePool", "ReduceMax": "GlobalMaxPool"}


def lower(to: Writer, images: Node, output: Node) -> None:
    """Write the operators of a graph, from input to output."""
    count_uses(output)
    nodes = list(ordered(output))
    # Transpose images before they are cast: uint8 has fewer bytes than floats.
    if any(node.op in ("Conv", "MaxPool", "AveragePool") for node in nodes):
        order = channels_first(len(images.shape))
        to.put(images, order, to.get(images, order))
    for node in nodes:
        if node is not images and not node.is_constant:
            name, order = RULES.get(node.op, _on_elements)(to, node)
            to.put(node, order, name)


def _on_elements(to: Writer, node: Node, /, **attributes: Any) -> Written:
    """Write an elementwise operator in the layout of its inputs."""
    order = _common_order(to, node)
    names = [
        to.get(x, order if len(x.shape) == len(order) else None) for x in node.inputs
    ]
    return to.add(node.op, names, **node.attributes, **attributes), order


def _common_order(to: Writer, node: Node) -> Order:
    """Return the first non-JAX layout of inputs with the node's rank, else JAX's."""
    rank = len(node.shape)
    large = [x for x in node.inputs if not x.is_constant and len(x.shape) == rank]
    found = map(to.order_of, large)
    return next((order for order in found if order != straight(rank)), straight(rank))


def _in_jax_order(to: Writer, node: Node) -> Written:
    name = to.add(node.op, [to.get(x) for x in node.inputs], **node.attributes)
    return name, straight(len(node.shape))


def _gelu(to: Writer, node: Node) -> Written:
    """Write Gelu as the Erf pattern that runtimes fuse into one operator."""
    order, dtype = _common_order(to, node), node.dtype
    name = to.get(node.inputs[0], order)
    erf = to.add("Erf", [to.add("Div", [name, to.constant(math.sqrt(2), dtype)])])
    gate = to.add("Add", [erf, to.constant(1.0, dtype)])
    product = to.add("Mul", [name, gate])
    return to.add("Mul", [product, to.constant(0.5, dtype)]), order


def _reduce(to: Writer, node: Node) -> Written:
    (x,), a = node.inputs, node.attributes
    dims, keepdims = a["axes"], a["keepdims"]
    order, rank = to.order_of(x), len(x.shape)
    name, axes = to.get(x, order), sorted(order.index(d) for d in dims)
    spatial = rank > 2 and axes == list(range(2, rank))
    if spatial and order == channels_first(rank) and node.op in GLOBAL_POOLS:
        name = to.add(GLOBAL_POOLS[node.op], [name])
        if keepdims:
            return name, order
        return to.add("Flatten", [name], axis=1), straight(2)
    if node.op == "ReduceSum" or to.opset >= OPSET_AXES:
        name = to.add(node.op, [name, to.constant(axes)], keepdims=int(keepdims))
    else:
        name = to.add(node.op, [name], axes=axes, keepdims=int(keepdims))
    if keepdims:
        return name, order
    rest = [d for d in order if d not in dims]
    return name, tuple(sorted(rest).index(d) for d in rest)


def _reshape(to: Writer, node: Node) -> Written:
    (x,) = node.inputs
    order, rank = to.order_of(x), len(node.shape)
    if filled(x.shape, order) != filled(x.shape, straight(len(order))):
        order = straight(len(order))
    # Use channels-first order if it has the same memory layout as JAX's order.
    target, images = straight(rank), channels_first(rank)
    if rank > 3 and filled(node.shape, images) == filled(node.shape, target):
        target = images
    name = to.reshape(to.get(x, order), tuple(node.shape[d] for d in target))
    return name, target


def _transpose(to: Writer, node: Node) -> Written:
    """Change the recorded dim order, instead of writing a Transpose."""
    (x,) = node.inputs
    order, moved = to.order_of(x), node.attributes["order"]
    return to.get(x, order), tuple(moved.index(d) for d in order)


def _expand(to: Writer, node: Node) -> Written:
    (x,) = node.inputs
    order = straight(len(node.shape)) if x.is_constant else to.order_of(x)
    # Expand keeps the size of dims given as 1.
    target = [1 if x.shape[d] == node.shape[d] else node.shape[d] for d in order]
    if not all(isinstance(n, int) for n in target):
        raise unknown("an array that is broadcast over the batch")
    return to.add("Expand", [to.get(x, order), to.constant(target)]), order


def _concat(to: Writer, node: Node) -> Written:
    order = _common_order(to, node)
    names = [to.get(x, order) for x in node.inputs]
    return to.add("Concat", names, axis=order.index(node.attributes["axis"])), order


def _slice(to: Writer, node: Node) -> Written:
    (x,), cut = node.inputs, node.attributes["cut"]
    order = to.order_of(x)
    if not all(isinstance(stop, int) for _, _, stop, _ in cut):
        raise unknown("a slice of the batch")
    dims, *parts = zip(*cut, strict=True)
    starts, stops, strides = map(to.constant, parts)
    axes = to.constant([order.index(d) for d in dims])
    return to.add("Slice", [to.get(x, order), starts, stops, axes, strides]), order


def _pad(to: Writer, node: Node) -> Written:
    (x,), a = node.inputs, node.attributes
    order = to.order_of(x)
    pads = to.constant(pads_of([a["sides"][d] for d in order]))
    value = to.constant(a["value"], node.dtype)
    return to.add("Pad", [to.get(x, order), pads, value]), order


def _window(to: Writer, node: Node) -> Written:
    """Write a convolution or pooling operator."""
    x, *weights = node.inputs
    rank = len(x.shape)
    order = channels_first(rank)
    names = [to.get(x, order)]
    if weights:
        kernel, *bias = weights
        outputs_first = (rank - 1, rank - 2, *range(rank - 2))
        names += write_weights(to, x, kernel, bias, outputs_first)
    return to.add(node.op, names, **node.attributes), order


def _matmul(to: Writer, node: Node) -> Written:
    x, y, *bias = node.inputs
    rank = len(node.shape)
    if y.is_constant and len(y.shape) == 2:
        if rank == 2:
            return _gemm(to, node)
        if to.order_of(x) == channels_first(rank):
            return _pointwise(to, node)
    name = to.add("MatMul", [to.get(x), to.get(y)])
    if bias:
        name = to.add("Add", [name, to.get(bias[0])])
    return name, straight(rank)


def _pointwise(to: Writer, node: Node) -> Written:
    """Write a matrix product over the channels of an NCHW array as a 1x1 Conv."""
    x, weights, *bias = node.inputs
    rank = len(x.shape)
    ones = [1] * (rank - 2)
    kernel = constant(weights.value.reshape(*ones, *weights.shape), weights.dtype)
    outputs_first = (rank - 1, rank - 2, *range(rank - 2))
    order = channels_first(rank)
    names = [to.get(x, order), *write_weights(to, x, kernel, bias, outputs_first)]
    return to.add("Conv", names, kernel_shape=ones), order


def _gemm(to: Writer, node: Node) -> Written:
    x, weights, *bias = node.inputs
    images, flat = x, None
    if x.op == "Reshape" and x.uses == 1:
        (images,) = x.inputs
        flat = images.shape[0], math.prod(images.shape[1:])
    order = to.order_of(images)
    if x.shape == flat and order != straight(len(order)) and order[0] == 0:
        # Permute the weights to the memory layout of the image.
        array = weights.value.reshape(*images.shape[1:], -1)
        moved = array.transpose(*(d - 1 for d in order[1:]), array.ndim - 1)
        weights = constant(moved.reshape(weights.shape), weights.dtype)
        name = to.add("Flatten", [to.get(images, order)], axis=1)
    else:
        name = to.get(x)
    names = [name, *write_weights(to, x, weights, bias, straight(2))]
    return to.add("Gemm" if bias else "MatMul", names), straight(2)


def _scale_and_shift(to: Writer, node: Node) -> Written:
    """Write scale and shift as a BatchNormalization with mean 0 and variance 1."""
    x, scale, shift = node.inputs
    rank = len(node.shape)
    if to.order_of(x) != channels_first(rank):
        name = to.add("Mul", [to.get(x), to.get(scale)])
        return to.add("Add", [name, to.get(shift)]), straight(rank)
    zeros, ones = (to.constant([n] * node.shape[-1], node.dtype) for n in (0.0, 1.0))
    names = [to.get(x, channels_first(rank)), to.get(scale), to.get(shift)]
    name = to.add("BatchNormalization", [*names, zeros, ones], epsilon=0.0)
    return name, channels_first(rank)


RULES: dict[str, Callable[[Writer, Node], Written]] = {
    "ArgMax": _in_jax_order,
    "ArgMin": _in_jax_order,
    "AveragePool": _window,
    "BatchNormalization": _scale_and_shift,
    "Cast": lambda to, node: _on_elements(to, node, to=to.type_of(node.dtype)),
    "Concat": _concat,
    "Conv": _window,
    DETECT: write_detect,
    "Expand": _expand,
    "Gelu": _gelu,
    "LayerNormalization": _in_jax_order,
    "MatMul": _matmul,
    "MaxPool": _window,
    "Pad": _pad,
    **dict.fromkeys((*REDUCTIONS.values(), "ReduceMean"), _reduce),
    "Reshape": _reshape,
    ROUND: write_round,
    "Slice": _slice,
    "Transpose": _transpose,
}
