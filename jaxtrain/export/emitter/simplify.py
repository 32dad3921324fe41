"""Fold what follows a product into its weights; join what runtimes have one op for."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from jaxtrain.export.emitter import patterns
from jaxtrain.export.emitter.graph import (
    Node,
    constant,
    count_uses,
    elementwise,
    ordered,
    reshape,
)
from jaxtrain.export.emitter.primitives import cast

# Node -> what takes its place, or None.
Rule = Callable[[Node], Node | None]
PRODUCTS = ("Conv", "MatMul")
# Constants of so many numbers are compared, to find what is computed twice.
SMALL = 64
# What changes no number.
NEUTRAL = {"Add": 0.0, "Mul": 1.0, "Max": -math.inf, "Min": math.inf}


def simplify(output: Node) -> Node:
    """Return the graph of the same function in fewer operators."""
    changed = True
    while changed:
        output, changed = _pass(output, RULES)
    # What is left of norms, once all has been folded that could be.
    return _pass(output, (patterns.scale_and_shift,))[0]


def _pass(output: Node, rules: tuple[Rule, ...]) -> tuple[Node, bool]:
    """Apply rules to each node once."""
    count_uses(output)
    new: dict[int, Node] = {}
    same: dict[Any, Node] = {}
    changed = False
    for node in ordered(output):
        inputs = tuple(new[id(x)] for x in node.inputs)
        if any(a is not b for a, b in zip(inputs, node.inputs, strict=True)):
            node.inputs = inputs
        result = same.setdefault(_key(node), node)
        if result is not node:
            result.uses += node.uses
            changed = True
        for rule in rules:
            found = rule(result)
            if found is not None:
                # What takes the place of a node is used where the node was.
                found.uses = max(node.uses, found.uses)
                result, changed = found, True
        new[id(node)] = result
    return new[id(output)], changed


def _key(node: Node) -> Any:
    """Return what two nodes share that compute the same array."""
    value = None
    if node.is_constant:
        if node.array.size > SMALL:
            return id(node)
        value = (node.array.dtype, node.array.tobytes())
    elif node.op == "Input":
        return id(node)
    attributes = tuple(sorted((k, repr(v)) for k, v in node.attributes.items()))
    inputs = tuple(map(id, node.inputs))
    return node.op, inputs, str(node.shape), node.dtype, attributes, value


def _order(node: Node) -> Node | None:
    """Write a constant second, and subtract and divide by adding and multiplying."""
    if not node.is_float or len(node.inputs) != 2:
        return None
    x, y = node.inputs
    if node.op in ("Add", "Mul", "Max", "Min") and x.is_constant and not y.is_constant:
        return elementwise(node.op, y, x)
    if node.op == "Sub" and y.is_constant:
        return elementwise("Add", x, constant(-_wide(y), y.dtype))
    if node.op == "Sub" and x.is_constant:
        return elementwise("Add", _scaled(y, -1.0), x)
    if node.op == "Div" and y.is_constant and not (y.array == 0).any():
        return elementwise("Mul", x, constant(1 / _wide(y), y.dtype))
    return None


def _negative(node: Node) -> Node | None:
    if node.op == "Neg" and node.is_float:
        return _scaled(node.inputs[0], -1.0)
    return None


def _odd(node: Node) -> Node | None:
    """Take the sign out of erf."""
    if node.op != "Erf" or not _is(node.inputs[0], "Mul"):
        return None
    x, by = node.inputs[0].inputs
    if by.is_constant and (by.array < 0).all():
        inner = elementwise("Mul", x, constant(-_wide(by), by.dtype))
        return _scaled(elementwise("Erf", inner), -1.0)
    return None


def _merge(node: Node) -> Node | None:
    """Join two constants; multiply before what is added."""
    if node.op not in ("Add", "Mul") or not node.is_float:
        return None
    x, y = node.inputs
    if not y.is_constant or x.op not in ("Add", "Mul") or x.uses > 1:
        return None
    inner, c = x.inputs
    if not c.is_constant or inner.is_constant:
        return None
    if node.op == x.op:
        combine = np.add if node.op == "Add" else np.multiply
        return elementwise(
            node.op, inner, constant(combine(_wide(c), _wide(y)), y.dtype)
        )
    if node.op == "Mul":
        shift = constant(_wide(c) * _wide(y), y.dtype)
        return elementwise("Add", elementwise("Mul", inner, y), shift)
    return None


def _nothing(node: Node) -> Node | None:
    """Leave out what changes nothing."""
    if node.op == "Reshape" and _is(node.inputs[0], "Reshape"):
        return reshape(node.inputs[0].inputs[0], node.shape)
    if node.op in ("Reshape", "Expand", "Transpose") and (
        node.op != "Transpose"
        or node.attributes["order"] == tuple(range(len(node.shape)))
    ):
        x = node.inputs[0]
        return x if tuple(x.shape) == tuple(node.shape) else None
    if node.op == "Cast":
        x = node.inputs[0]
        if x.dtype == node.dtype:
            return x
        # To a wider dtype and back.
        if x.op == "Cast" and x.is_float and x.inputs[0].dtype == node.dtype:
            return x.inputs[0] if x.dtype.itemsize > node.dtype.itemsize else None
        return None
    if node.op in NEUTRAL and node.is_float and node.inputs[1].is_constant:
        x, y = node.inputs
        neutral = NEUTRAL[node.op]
        same = tuple(x.shape) == tuple(node.shape)
        # As it is written in the end.
        return x if same and (y.array.astype(y.dtype) == neutral).all() else None
    return None


def _fold(node: Node) -> Node | None:
    """Fold a factor, or what is added, of each output into a product's weights."""
    if node.op not in ("Add", "Mul") or not node.is_float:
        return None
    x, y = node.inputs
    product = x.inputs[0] if x.op == "Cast" and x.is_float else x
    if product.op not in PRODUCTS or not product.inputs[1].is_constant:
        return None
    if x.uses > 1 or product.uses > 1 or not _of_outputs(y, product.shape):
        return None
    data, weights, *bias = product.inputs
    number = np.broadcast_to(_wide(y).reshape(-1), (product.shape[-1],))
    old = _wide(bias[0]) if bias else np.zeros(len(number))
    if node.op == "Mul":
        scaled = (weights.array * number).astype(weights.array.dtype)
        weights = constant(scaled, weights.dtype)
        old = old * number
    else:
        old = old + number
    new = [constant(old, product.dtype)] if bias or node.op == "Add" else []
    inputs = (data, weights, *new)
    return cast(
        Node(product.op, inputs, product.shape, product.dtype, product.attributes),
        node.dtype,
    )


def _mean(node: Node) -> Node | None:
    """A sum over dims, divided by their size, is a mean."""
    x = node.inputs[0] if node.op == "Mul" else node
    if node.op != "Mul" or x.op != "ReduceSum" or x.uses > 1 or not node.is_float:
        return None
    sizes = [x.inputs[0].shape[d] for d in x.attributes["axes"]]
    y = node.inputs[1]
    if not y.is_constant or not all(isinstance(n, int) for n in sizes):
        return None
    if y.array.size == 1 and math.isclose(
        y.array.item() * math.prod(sizes), 1, rel_tol=1e-6
    ):
        return Node("ReduceMean", x.inputs, x.shape, x.dtype, x.attributes)
    return None


def _keep_dims(node: Node) -> Node | None:
    """A reduction whose dims are inserted again keeps them."""
    x = node.inputs[0] if node.op == "Reshape" else node
    if node.op != "Reshape" or not x.op.startswith("Reduce"):
        return None
    if x.uses > 1 or x.attributes["keepdims"]:
        return None
    axes = x.attributes["axes"]
    kept = tuple(1 if d in axes else n for d, n in enumerate(x.inputs[0].shape))
    if kept != tuple(node.shape):
        return None
    attributes = {**x.attributes, "keepdims": True}
    return Node(x.op, x.inputs, node.shape, x.dtype, attributes)


def _of_outputs(y: Node, shape: Any) -> bool:
    """Return whether a constant has a number for each last dim of a shape."""
    if not y.is_constant or len(y.shape) > len(shape):
        return False
    *others, last = y.shape or (1,)
    return all(n == 1 for n in others) and last in (1, shape[-1])


def _is(node: Node, op: str) -> bool:
    return node.op == op and node.uses == 1


def _wide(x: Node) -> np.ndarray:
    return x.array.astype(np.float64)


def _scaled(x: Node, by: float) -> Node:
    return elementwise("Mul", x, constant(np.float64(by), x.dtype))


RULES: tuple[Rule, ...] = (
    _order,
    _negative,
    _odd,
    _merge,
    _nothing,
    _fold,
    _mean,
    _keep_dims,
    *patterns.RULES,
)
