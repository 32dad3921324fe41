"""How each operator is written in ONNX: its name, and the order of its dims."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxtrain.export.emitter.graph import Node, constant, unknown
from jaxtrain.export.emitter.layout import (
    Order,
    channels_first,
    filled,
    is_unit,
    straight,
)

if TYPE_CHECKING:
    from jaxtrain.export.emitter.lower import Lowering

Written = tuple[str, Order]
Rule = Callable[["Lowering", Node], Written]


def on_elements(to: "Lowering", node: Node) -> Written:
    """Write an operator on elements in the order of its inputs."""
    rank = len(node.shape)
    order = common_order(to, node.inputs, rank)
    names = [_operand(to, x, order) for x in node.inputs]
    return to.add(node.op, names, **node.attributes), order


def common_order(to: "Lowering", inputs: tuple[Node, ...], rank: int) -> Order:
    """Return the order of the first large input, or one that is not straight."""
    found = [
        to.order_of(x) for x in inputs if not x.is_constant and len(x.shape) == rank
    ]
    return next((order for order in found if order != straight(rank)), straight(rank))


def _operand(to: "Lowering", x: Node, order: Order) -> str:
    return to.get(x, order if len(x.shape) == len(order) else None)


def _cast(to: "Lowering", node: Node) -> Written:
    (x,) = node.inputs
    order = common_order(to, (x,), len(node.shape))
    to_type = to.writer.type_of(node.dtype)
    return to.add("Cast", [_operand(to, x, order)], to=to_type), order


def _clip(to: "Lowering", node: Node) -> Written:
    (x,) = node.inputs
    order = common_order(to, (x,), len(node.shape))
    ends = [to.numbers(node.attributes[name], node.dtype) for name in ("low", "high")]
    return to.add("Clip", [_operand(to, x, order), *ends]), order


def _hard_sigmoid(to: "Lowering", node: Node) -> Written:
    (x,) = node.inputs
    order = common_order(to, (x,), len(node.shape))
    return to.add("HardSigmoid", [to.get(x, order)], alpha=1 / 6, beta=0.5), order


def _gelu(to: "Lowering", node: Node) -> Written:
    """Write Gelu in the operators, and the order, that runtimes join."""
    (x,) = node.inputs
    order = common_order(to, (x,), len(node.shape))
    name, dtype = to.get(x, order), node.dtype
    erf = to.add("Erf", [to.add("Div", [name, to.numbers(math.sqrt(2), dtype)])])
    gate = to.add("Add", [erf, to.numbers(1.0, dtype)])
    product = to.add("Mul", [name, gate])
    return to.add("Mul", [product, to.numbers(0.5, dtype)]), order


def _conv(to: "Lowering", node: Node) -> Written:
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
        pads=_pads(a["padding"]),
        dilations=list(a["dilations"]),
        group=a["groups"],
    ), order


def _pads(padding: Any) -> list[int]:
    return [low for low, _ in padding] + [high for _, high in padding]


def _matmul(to: "Lowering", node: Node) -> Written:
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


def _pointwise(to: "Lowering", node: Node) -> Written:
    """Write a product over channels that lie first: a convolution of one pixel."""
    x, weights, *bias = node.inputs
    ones = len(x.shape) - 2
    kernel = constant(
        weights.array.T.reshape((*weights.shape[::-1], *[1] * ones)), weights.dtype
    )
    order = channels_first(len(x.shape))
    names = [to.get(x, order), to.get(kernel), *(to.get(b) for b in bias)]
    return to.add("Conv", names, kernel_shape=[1] * ones), order


def _gemm(to: "Lowering", node: Node) -> Written:
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


def _pool(to: "Lowering", node: Node) -> Written:
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
        pads=_pads(a["padding"]),
        **more,
    )
    return name, order


def _reduce(to: "Lowering", node: Node) -> Written:
    (x,), a = node.inputs, node.attributes
    order, rank = to.order_of(x), len(x.shape)
    axes = sorted(order.index(d) for d in a["axes"])
    whole = {"ReduceMean": "GlobalAveragePool", "ReduceMax": "GlobalMaxPool"}
    spatial = rank > 2 and axes == list(range(2, rank))
    if spatial and order == channels_first(rank) and node.op in whole:
        name = to.add(whole[node.op], [to.get(x, order)])
        if a["keepdims"]:
            return name, order
        return to.add("Flatten", [name], axis=1), straight(2)
    name = to.writer.reduce(node.op, to.get(x, order), axes, a["keepdims"])
    if a["keepdims"]:
        return name, order
    rest = [d for d in order if d not in a["axes"]]
    return name, tuple(sorted(rest).index(d) for d in rest)


def _reshape(to: "Lowering", node: Node) -> Written:
    (x,) = node.inputs
    order, rank = to.order_of(x), len(node.shape)
    if filled(x.shape, order) != filled(x.shape, straight(len(order))):
        order = straight(len(order))
    # Images lie with the channels first, if their numbers need not move for it.
    target = straight(rank)
    if rank > 3 and filled(node.shape, channels_first(rank)) == filled(
        node.shape, straight(rank)
    ):
        target = channels_first(rank)
    shape = to.target(tuple(node.shape[d] for d in target))
    return to.add("Reshape", [to.get(x, order), shape]), target


def _transpose(to: "Lowering", node: Node) -> Written:
    """Write nothing: only the order of the dims is another."""
    (x,) = node.inputs
    order, moved = to.order_of(x), node.attributes["order"]
    return to.get(x, order), tuple(moved.index(d) for d in order)


def _expand(to: "Lowering", node: Node) -> Written:
    (x,) = node.inputs
    order = straight(len(node.shape)) if x.is_constant else to.order_of(x)
    # 1 is as many as there are.
    target = [
        1 if have == want else want
        for have, want in zip(x.shape, node.shape, strict=True)
    ]
    if not all(isinstance(n, int) for n in target):
        raise unknown("an array that is repeated for each image")
    shape = to.integers(*(target[d] for d in order))
    return to.add("Expand", [to.get(x, order), shape]), order


def _concat(to: "Lowering", node: Node) -> Written:
    order = common_order(to, node.inputs, len(node.shape))
    names = [to.get(x, order) for x in node.inputs]
    return to.add("Concat", names, axis=order.index(node.attributes["axis"])), order


def _slice(to: "Lowering", node: Node) -> Written:
    (x,), cut = node.inputs, node.attributes["cut"]
    order = to.order_of(x)
    if any(not is_unit(stop) and not isinstance(stop, int) for _, _, stop, _ in cut):
        raise unknown("a slice of the batch")
    starts, stops, strides = (to.integers(*(c[i] for c in cut)) for i in (1, 2, 3))
    axes = to.integers(*(order.index(d) for d, *_ in cut))
    return to.add("Slice", [to.get(x, order), starts, stops, axes, strides]), order


def _pad(to: "Lowering", node: Node) -> Written:
    (x,), a = node.inputs, node.attributes
    order = to.order_of(x)
    pads = to.integers(*_pads([a["sides"][d] for d in order]))
    value = to.numbers(a["value"], node.dtype)
    return to.add("Pad", [to.get(x, order), pads, value]), order


def _layer_norm(to: "Lowering", node: Node) -> Written:
    names = [to.get(x) for x in node.inputs]
    epsilon = node.attributes["epsilon"]
    name = to.add("LayerNormalization", names, axis=-1, epsilon=epsilon)
    return name, straight(len(node.shape))


def _arg(to: "Lowering", node: Node) -> Written:
    (x,), (axis,) = node.inputs, node.attributes["axes"]
    return to.add(node.op, [to.get(x)], axis=axis, keepdims=0), straight(
        len(node.shape)
    )


def _extreme(to: "Lowering", node: Node) -> Written:
    """Write Max and Min of numbers with which ONNX has types: not of booleans."""
    if node.dtype == np.bool_:
        raise unknown("the maximum of booleans")
    return on_elements(to, node)


RULES: dict[str, Rule] = {
    "ArgMax": _arg,
    "ArgMin": _arg,
    "AveragePool": _pool,
    "Cast": _cast,
    "Clip": _clip,
    "Concat": _concat,
    "Conv": _conv,
    "Expand": _expand,
    "Gelu": _gelu,
    "HardSigmoid": _hard_sigmoid,
    "LayerNormalization": _layer_norm,
    "MatMul": _matmul,
    "Max": _extreme,
    "MaxPool": _pool,
    "Min": _extreme,
    "Pad": _pad,
    "ReduceMax": _reduce,
    "ReduceMean": _reduce,
    "ReduceMin": _reduce,
    "ReduceProd": _reduce,
    "ReduceSum": _reduce,
    "Reshape": _reshape,
    "Slice": _slice,
    "Transpose": _transpose,
}
