"""Simplification of a graph: folding into weights, and fusion into ONNX operators."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from jaxtrain.plugins.onnx.emitter import patterns
from jaxtrain.plugins.onnx.emitter.graph import (
    Node,
    cast,
    constant,
    count_uses,
    elementwise,
    ordered,
    reshape,
)

# Function from a node to its replacement, or to None.
Rule = Callable[[Node], Node | None]
# Operators with inputs (data, weights) or (data, weights, bias).
PRODUCTS = ("Conv", "LayerNormalization", "MatMul")
# Common-subexpression elimination compares constants of at most SMALL elements.
SMALL = 64
# Operator -> its neutral element.
NEUTRAL = {"Add": 0.0, "Mul": 1.0, "Max": -math.inf, "Min": math.inf}


def simplify(output: Node) -> Node:
    """Simplify a graph to fewer operators."""
    changed = True
    while changed:
        output, changed = _pass(output, RULES)
    # Fuse the norms that could not be folded into weights.
    return _pass(output, (_barrier, patterns.scale_and_shift))[0]


def _pass(output: Node, rules: tuple[Rule, ...]) -> tuple[Node, bool]:
    """Apply rules once per node; return the output, and whether the graph changed."""
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
                # The replacement is used at least as often as the node.
                found.uses = max(node.uses, found.uses)
                result, changed = found, True
        new[id(node)] = result
    return new[id(output)], changed


def _key(node: Node) -> Any:
    """Key shared by nodes that compute the same array."""
    value = None
    if node.is_constant:
        if node.value.size > SMALL:
            return id(node)
        value = (node.value.dtype, node.value.tobytes())
    elif node.op == "Input":
        return id(node)
    attributes = tuple(sorted((k, repr(v)) for k, v in node.attributes.items()))
    inputs = tuple(map(id, node.inputs))
    return node.op, inputs, str(node.shape), node.dtype, attributes, value


def _canonical(node: Node) -> Node | None:
    """Canonicalize arithmetic to Add and Mul, with constants as second inputs."""
    if not node.is_float:
        return None
    match node:
        case Node(
            op="Add" | "Mul" | "Max" | "Min",
            inputs=(Node(op="Constant") as x, y),
        ) if not y.is_constant:
            return elementwise(node.op, y, x)
        case Node(op="Sub", inputs=(x, Node(op="Constant") as y)):
            return elementwise("Add", x, constant(-_wide(y), y.dtype))
        case Node(op="Sub", inputs=(Node(op="Constant") as x, y)):
            return elementwise("Add", _negative(y), x)
        case Node(op="Div", inputs=(x, Node(op="Constant") as y)) if y.value.all():
            return elementwise("Mul", x, constant(1 / _wide(y), y.dtype))
        case Node(op="Neg", inputs=(x,)):
            return _negative(x)
        case Node(
            op="Erf",
            inputs=(Node(op="Mul", uses=1, inputs=(x, Node(op="Constant") as by)),),
        ) if (by.value < 0).all():
            inner = elementwise("Mul", x, constant(-_wide(by), by.dtype))
            return _negative(elementwise("Erf", inner))
    return None


def _merge(node: Node) -> Node | None:
    """Merge the constants of nested Add or Mul; rewrite (x + c) * y as x * y + c * y.

    The operands c and y are constants.
    """
    if node.op not in ("Add", "Mul") or not node.is_float:
        return None
    x, y = node.inputs
    if not y.is_constant or x.op not in ("Add", "Mul") or x.uses > 1:
        return None
    inner, c = x.inputs
    if not c.is_constant or inner.is_constant:
        return None
    if node.op == x.op:
        both = _wide(c) + _wide(y) if node.op == "Add" else _wide(c) * _wide(y)
        return elementwise(node.op, inner, constant(both, y.dtype))
    if node.op == "Mul":
        shift = constant(_wide(c) * _wide(y), y.dtype)
        return elementwise("Add", elementwise("Mul", inner, y), shift)
    return None


def _remove_identity(node: Node) -> Node | None:
    """Remove operators that are identities."""
    match node:
        case Node(op="Reshape", inputs=(Node(op="Reshape", uses=1, inputs=(x,)),)):
            return reshape(x, node.shape)
        # Cast to a wider dtype and back.
        case Node(
            op="Cast", inputs=(Node(op="Cast", is_float=True, inputs=(x,)) as wide,)
        ) if x.dtype == node.dtype and wide.dtype.itemsize > node.dtype.itemsize:
            return x
        case Node(op=op, is_float=True, inputs=(x, y)) if op in NEUTRAL:
            # Compare constants after rounding to their dtype, as in the file.
            neutral = y.is_constant and y.value.astype(y.dtype) == NEUTRAL[op]
            return x if x.shape == node.shape and np.all(neutral) else None
    return None


def _barrier(node: Node) -> Node | None:
    """Remove optimization barriers."""
    return node.inputs[0] if node.op == "Barrier" else None


def _fold(node: Node) -> Node | None:
    """Fold a factor or addend per output channel into the weights or the bias."""
    if node.op not in ("Add", "Mul") or not node.is_float:
        return None
    x, y = node.inputs
    product = x.inputs[0] if x.op == "Cast" and x.is_float else x
    if product.op not in PRODUCTS or not product.inputs[1].is_constant:
        return None
    if x.uses > 1 or product.uses > 1 or not _is_per_output(y, product.shape):
        return None
    data, weights, *bias = product.inputs
    number = np.broadcast_to(_wide(y).reshape(-1), (product.shape[-1],))
    old = _wide(bias[0]) if bias else np.zeros(len(number))
    if node.op == "Mul":
        scaled = (weights.value * number).astype(weights.value.dtype)
        weights = constant(scaled, weights.dtype)
        old = old * number
    else:
        old = old + number
    new = [constant(old, product.dtype)] if bias or node.op == "Add" else []
    return cast(replace(product, inputs=(data, weights, *new)), node.dtype)


def _reduction(node: Node) -> Node | None:
    """Fuse a division into a sum (ReduceMean), or a reshape into `keepdims`."""
    match node:
        case Node(
            op="Mul",
            is_float=True,
            inputs=(Node(op="ReduceSum", uses=1) as x, Node(number=float() as by)),
        ):
            size = math.prod(x.inputs[0].shape[d] for d in x.attributes["axes"])
            if isinstance(size, int) and math.isclose(by * size, 1, rel_tol=1e-6):
                return replace(x, op="ReduceMean")
        case Node(
            op="Reshape",
            inputs=(Node(uses=1, attributes={"keepdims": False, "axes": axes}) as x,),
        ):
            shape = x.inputs[0].shape
            kept = tuple(1 if d in axes else n for d, n in enumerate(shape))
            if kept == node.shape:
                attributes = {"axes": axes, "keepdims": True}
                return replace(x, shape=kept, attributes=attributes)
    return None


def _is_per_output(y: Node, shape: Any) -> bool:
    """Whether a constant is a scalar, or varies only over the last dim of a shape."""
    if not y.is_constant or len(y.shape) > len(shape):
        return False
    *others, last = y.shape or (1,)
    return all(n == 1 for n in others) and last in (1, shape[-1])


def _wide(x: Node) -> np.ndarray:
    return x.value.astype(np.float64)


def _negative(x: Node) -> Node:
    return elementwise("Mul", x, constant(np.float64(-1), x.dtype))


RULES: tuple[Rule, ...] = (
    _canonical,
    _merge,
    _remove_identity,
    _fold,
    _reduction,
    *patterns.RULES,
)
