"""The arrays that are in the file so far, and the order in which each lies."""

from typing import Any

import numpy as np

from jaxtrain.export.emitter.graph import Node, Shape, unknown
from jaxtrain.export.emitter.layout import Order, filled, straight
from jaxtrain.export.emitter.write import Writer


class Lowering:
    """Names each node's array in the file, once for each order that was asked for."""

    def __init__(self, writer: Writer):
        self.writer = writer
        # What is written of a node, by its id and order; the first is as it came.
        self._names: dict[Node, dict[Order, str]] = {}

    def order_of(self, node: Node) -> Order:
        """Return the order in which a node was written first."""
        return next(iter(self._names[node]))

    def put(self, node: Node, order: Order, name: str, first: bool = False) -> None:
        """Note what is written of a node; `first`: as how it lies."""
        names = self._names.get(node, {})
        self._names[node] = {order: name, **names} if first else {**names, order: name}

    def get(self, node: Node, order: Order | None = None) -> str:
        """Return the name of a node's array in an order, straight by default."""
        order = straight(len(node.shape)) if order is None else order
        if node.is_constant:
            return self.get_constant(node, order)
        names = self._names[node]
        if order not in names:
            names[order] = self._reorder(node, order)
        return names[order]

    def get_constant(self, node: Node, order: Order) -> str:
        names = self._names.setdefault(node, {})
        if order not in names:
            array = node.array.transpose(order)
            names[order] = self.writer.constant(array, node.dtype)
        return names[order]

    def _reorder(self, node: Node, order: Order) -> str:
        have = self.order_of(node)
        name = self._names[node][have]
        if filled(node.shape, have) == filled(node.shape, order):
            shape = self.target(tuple(node.shape[d] for d in order))
            return self.add("Reshape", [name, shape])
        permutation = [have.index(d) for d in order]
        return self.add("Transpose", [name], perm=permutation)

    def add(self, op: str, inputs: list[str], **attributes: Any) -> str:
        return self.writer.add(op, inputs, **attributes)

    def target(self, shape: Shape) -> str:
        """Return the shape that a reshape takes, whose batch may be any."""
        return self.integers(*sizes(shape))

    def integers(self, *values: int) -> str:
        return self.writer.constant(np.array(values, np.int64), np.dtype(np.int64))

    def numbers(self, values: Any, dtype: Any) -> str:
        return self.writer.constant(np.asarray(values), np.dtype(dtype))


def sizes(shape: Shape) -> list[int]:
    """Return a shape as ONNX takes it: -1 for what follows from the others."""
    known = [n if isinstance(n, int) else -1 for n in shape]
    if known.count(-1) > 1:
        raise unknown(f"a shape {shape} with the batch in two dims")
    return known
