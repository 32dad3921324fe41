"""How each operator is written in ONNX: its name, and the order of its dims."""

import math
from collections.abc import Callable

import numpy as np

from jaxtrain.export.emitter import products
from jaxtrain.export.emitter.graph import Node, unknown
from jaxtrain.export.emitter.layout import (
    Order,
    channels_first,
    filled,
    is_unit,
    straight,
)
from jaxtrain.export.emitter.lowering import Lowering
from jaxtrain.export.emitter.products import Written, pads_of

Rule = Callable[[Lowering, Node], Written]


def on_elements(to: Lowering, node: Node) -> Written:
    """Write an operator on elements in the order of its inputs."""
    rank = len(node.shape)
    order = common_order(to, node.inputs, rank)
    names = [_operand(to, x, order) for x in node.inputs]
    return to.add(node.op, names, **node.attributes), order


def common_order(to: Lowering, inputs: tuple[Node, ...], rank: int) -> Order:
    """Return the order of the first large input, or one that is not straight."""
    found = [
        to.order_of(x) for x in inputs if not x.is_constant and len(x.shape) == rank
    ]
    return next((order for order in found if order != straight(rank)), straight(rank))


def _operand(to: Lowering, x: Node, order: Order) -> str:
    return to.get(x, order if len(x.shape) == len(order) else None)


def _cast(to: Lowering, node: Node) -> Written:
    (x,) = node.inputs
    order = common_order(to, (x,), len(node.shape))
    to_type = to.writer.type_of(node.dtype)
    return to.add("Cast", [_operand(to, x, order)], to=to_type), order


def _clip(to: Lowering, node: Node) -> Written:
    (x,) = node.inputs
    order = common_order(to, (x,), len(node.shape))
    ends = [to.numbers(node.attributes[name], node.dtype) for name in ("low", "high")]
    return to.add("Clip", [_operand(to, x, order), *ends]), order


def _hard_sigmoid(to: Lowering, node: Node) -> Written:
    (x,) = node.inputs
    order = common_order(to, (x,), len(node.shape))
    return to.add("HardSigmoid", [to.get(x, order)], alpha=1 / 6, beta=0.5), order


def _gelu(to: Lowering, node: Node) -> Written:
    """Write Gelu in the operators, and the order, that runtimes join."""
    (x,) = node.inputs
    order = common_order(to, (x,), len(node.shape))
    name, dtype = to.get(x, order), node.dtype
    erf = to.add("Erf", [to.add("Div", [name, to.numbers(math.sqrt(2), dtype)])])
    gate = to.add("Add", [erf, to.numbers(1.0, dtype)])
    product = to.add("Mul", [name, gate])
    return to.add("Mul", [product, to.numbers(0.5, dtype)]), order


def _reduce(to: Lowering, node: Node) -> Written:
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


def _reshape(to: Lowering, node: Node) -> Written:
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


def _transpose(to: Lowering, node: Node) -> Written:
    """Write nothing: only the order of the dims is another."""
    (x,) = node.inputs
    order, moved = to.order_of(x), node.attributes["order"]
    return to.get(x, order), tuple(moved.index(d) for d in order)


def _expand(to: Lowering, node: Node) -> Written:
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


def _concat(to: Lowering, node: Node) -> Written:
    order = common_order(to, node.inputs, len(node.shape))
    names = [to.get(x, order) for x in node.inputs]
    return to.add("Concat", names, axis=order.index(node.attributes["axis"])), order


def _slice(to: Lowering, node: Node) -> Written:
    (x,), cut = node.inputs, node.attributes["cut"]
    order = to.order_of(x)
    if any(not is_unit(stop) and not isinstance(stop, int) for _, _, stop, _ in cut):
        raise unknown("a slice of the batch")
    starts, stops, strides = (to.integers(*(c[i] for c in cut)) for i in (1, 2, 3))
    axes = to.integers(*(order.index(d) for d, *_ in cut))
    return to.add("Slice", [to.get(x, order), starts, stops, axes, strides]), order


def _pad(to: Lowering, node: Node) -> Written:
    (x,), a = node.inputs, node.attributes
    order = to.order_of(x)
    pads = to.integers(*pads_of([a["sides"][d] for d in order]))
    value = to.numbers(a["value"], node.dtype)
    return to.add("Pad", [to.get(x, order), pads, value]), order


def _layer_norm(to: Lowering, node: Node) -> Written:
    names = [to.get(x) for x in node.inputs]
    epsilon = node.attributes["epsilon"]
    name = to.add("LayerNormalization", names, axis=-1, epsilon=epsilon)
    return name, straight(len(node.shape))


def _arg(to: Lowering, node: Node) -> Written:
    (x,), (axis,) = node.inputs, node.attributes["axes"]
    return to.add(node.op, [to.get(x)], axis=axis, keepdims=0), straight(
        len(node.shape)
    )


def _extreme(to: Lowering, node: Node) -> Written:
    """Write Max and Min of numbers with which ONNX has types: not of booleans."""
    if node.dtype == np.bool_:
        raise unknown("the maximum of booleans")
    return on_elements(to, node)


RULES: dict[str, Rule] = {
    **products.RULES,
    "ArgMax": _arg,
    "ArgMin": _arg,
    "Cast": _cast,
    "Clip": _clip,
    "Concat": _concat,
    "Expand": _expand,
    "Gelu": _gelu,
    "HardSigmoid": _hard_sigmoid,
    "LayerNormalization": _layer_norm,
    "Max": _extreme,
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
