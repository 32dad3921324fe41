"""How convolutions, products of matrices and pools are written in ONNX."""

import math
from collections.abc import Callable
from typing import Any

from jaxtrain.export.emitter.graph import Node, constant
from jaxtrain.export.emitter.layout import Order, channels_first, straight
from jaxtrain.export.emitter.lowering import Lowering

# The name of what is written, and the order of its dims.
Written = tuple[str, Order]


def pads_of(padding: Any) -> list[int]:
    """Return the padding of each dim as ONNX takes it: all before, all behind."""
    return [low for low, _ in padding] + [high for _, high in padding]


def _conv(to: Lowering, node: Node) -> Written:
    x, kernel, *bias = node.inputs
    rank, a = len(x.shape), node.attributes
    order = channels_first(rank)
    names = [to.get(x, order), to.get(kernel, (rank - 1, rank - 2, *range(rank - 2)))]
    names += [to.get(b) for b in bias]
    return to.add(
        "Conv",
        names,
        kernel_shape=list(kernel.shape[:-2]),
        strides=list(a["strides"]),
        pads=pads_of(a["padding"]),
        dilations=list(a["dilations"]),
        group=a["groups"],
    ), order


def _matmul(to: Lowering, node: Node) -> Written:
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


def _pointwise(to: Lowering, node: Node) -> Written:
    """Write a product over channels that lie first: a convolution of one pixel."""
    x, weights, *bias = node.inputs
    ones = len(x.shape) - 2
    kernel = constant(
        weights.array.T.reshape((*weights.shape[::-1], *[1] * ones)), weights.dtype
    )
    order = channels_first(len(x.shape))
    names = [to.get(x, order), to.get(kernel), *(to.get(b) for b in bias)]
    return to.add("Conv", names, kernel_shape=[1] * ones), order


def _gemm(to: Lowering, node: Node) -> Written:
    x, weights, *bias = node.inputs
    name = None
    images = x.inputs[0] if x.op == "Reshape" else x
    if x.op == "Reshape" and images.op != "Constant" and x.uses == 1:
        order = to.order_of(images)
        flat = tuple(x.shape) == (images.shape[0], math.prod(images.shape[1:]))
        if flat and order != straight(len(order)) and order[0] == 0:
            # The weights lie as the image does.
            shape = images.shape[1:]
            moved = weights.array.reshape(*shape, -1).transpose(
                *(d - 1 for d in order[1:]), len(shape)
            )
            weights = constant(moved.reshape(weights.shape), weights.dtype)
            name = to.add("Flatten", [to.get(images, order)], axis=1)
    names = [name or to.get(x), to.get(weights), *(to.get(b) for b in bias)]
    op = "Gemm" if bias else "MatMul"
    return to.add(op, names), straight(2)


def _scale_and_shift(to: Lowering, node: Node) -> Written:
    """Write a norm whose mean is 0 and deviation 1: runtimes have one op for both."""
    x, scale, shift = node.inputs
    rank = len(node.shape)
    if to.order_of(x) != channels_first(rank):
        name = to.add("Mul", [to.get(x), to.get(scale)])
        return to.add("Add", [name, to.get(shift)]), straight(rank)
    zeros, ones = (to.numbers([n] * node.shape[-1], node.dtype) for n in (0.0, 1.0))
    names = [to.get(x, channels_first(rank)), to.get(scale), to.get(shift)]
    name = to.add("BatchNormalization", [*names, zeros, ones], epsilon=0.0)
    return name, channels_first(rank)


def _pool(to: Lowering, node: Node) -> Written:
    (x,), a = node.inputs, node.attributes
    order = channels_first(len(x.shape))
    more: dict[str, Any] = {}
    if node.op == "AveragePool":
        more["count_include_pad"] = 0 if a.get("partial") else 1
    elif any(d != 1 for d in a["dilations"]):
        more["dilations"] = list(a["dilations"])
    name = to.add(
        node.op,
        [to.get(x, order)],
        kernel_shape=list(a["size"]),
        strides=list(a["strides"]),
        pads=pads_of(a["padding"]),
        **more,
    )
    return name, order


RULES: dict[str, Callable[[Lowering, Node], Written]] = {
    "AveragePool": _pool,
    "BatchNormalization": _scale_and_shift,
    "Conv": _conv,
    "MatMul": _matmul,
    "MaxPool": _pool,
}
