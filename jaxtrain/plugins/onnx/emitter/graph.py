"""Intermediate graph between jaxpr and ONNX: each node computes one array."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxtrain.errors import UserError

# Dims are integers, or symbolic dims of `jax.export`.
Shape = tuple[Any, ...]


@dataclass(eq=False)
class Node:
    """An array and its computation.

    Operators and attributes are named as in ONNX if they mean the same, but the layout
    is JAX's: images (batch, rows, columns, channels), kernels (rows, columns, in, out).
    Elementwise operators broadcast as in NumPy; operands have equal ranks, or are
    scalars.

    Attributes:
      op: Operator; "Input" and "Constant" have no inputs.
      inputs: Input nodes of the operator.
      shape: Shape of the result.
      dtype: Dtype of the result.
      attributes: Attributes of the operator.
      value: NumPy array of a constant, possibly in higher precision than `dtype`:
        constants are folded unrounded, and rounded when they are written.
      uses: Number of uses as an input, or as the output of the graph.
    """

    op: str
    inputs: tuple["Node", ...]
    shape: Shape
    dtype: np.dtype
    attributes: dict[str, Any] = field(default_factory=dict)
    value: Any = None
    uses: int = 1

    def __post_init__(self):
        self.shape = tuple(plain(size) for size in self.shape)
        self.dtype = np.dtype(self.dtype)

    @property
    def number(self) -> float | None:
        """Value of a constant with one element; None for other nodes."""
        if self.value is None or self.value.size != 1:
            return None
        return float(self.value.item())

    @property
    def is_constant(self) -> bool:
        return self.op == "Constant"

    @property
    def is_float(self) -> bool:
        return bool(jnp.issubdtype(self.dtype, jnp.floating))


def plain(size: Any) -> Any:
    """Convert the size of a dim to a Python int, unless it is symbolic."""
    return int(size) if isinstance(size, np.integer) else size


def constant(value: Any, dtype: Any = None) -> Node:
    """Create a constant, which is rounded to `dtype` when it is written."""
    value = np.asarray(value)
    dtype = value.dtype if dtype is None else dtype
    return Node("Constant", (), value.shape, dtype, value=value)


def elementwise(op: str, *inputs: Node, dtype: Any = None, **attributes: Any) -> Node:
    """Create an elementwise operator, with the broadcast shape of its inputs."""
    rank = max(len(x.shape) for x in inputs)
    padded = [(1,) * (rank - len(x.shape)) + x.shape for x in inputs]
    dims = zip(*padded, strict=True)
    shape = tuple(next((size for size in sizes if size != 1), 1) for sizes in dims)
    dtype = inputs[0].dtype if dtype is None else dtype
    return Node(op, inputs, shape, dtype, attributes)


def cast(x: Node, dtype: Any) -> Node:
    """Cast `x` to another dtype. Constant floats keep their precision."""
    if x.dtype == dtype:
        return x
    if x.is_constant:
        precise = x.is_float and jnp.issubdtype(dtype, jnp.floating)
        return constant(x.value if precise else x.value.astype(dtype), dtype)
    return elementwise("Cast", x, dtype=dtype)


def reshape(x: Node, shape: Shape) -> Node:
    """Reshape `x`; constants are evaluated immediately."""
    if x.shape == tuple(shape):
        return x
    if x.is_constant:
        return constant(x.value.reshape(shape), x.dtype)
    return Node("Reshape", (x,), shape, x.dtype)


def transpose(x: Node, order: tuple[int, ...]) -> Node:
    """Transpose `x`; constants are evaluated immediately."""
    if order == tuple(range(len(order))):
        return x
    if x.is_constant:
        return constant(x.value.transpose(order), x.dtype)
    shape = tuple(x.shape[d] for d in order)
    return Node("Transpose", (x,), shape, x.dtype, {"order": order})


def full(x: Node, shape: Shape) -> Node:
    """Broadcast `x` to a shape of the same rank."""
    if x.shape == tuple(shape):
        return x
    if x.is_constant and all(isinstance(d, int) for d in shape):
        return constant(np.broadcast_to(x.value, shape), x.dtype)
    return Node("Expand", (x,), shape, x.dtype)


def ordered(output: Node) -> Iterator[Node]:
    """Yield all nodes that `output` depends on, in topological order."""
    seen: set[int] = set()
    stack = [(output, False)]
    while stack:
        node, done = stack.pop()
        if done:
            yield node
        elif id(node) not in seen:
            seen.add(id(node))
            stack.append((node, True))
            stack.extend((x, False) for x in reversed(node.inputs))


def count_uses(output: Node) -> None:
    """Set `uses` of each node that `output` depends on."""
    nodes = list(ordered(output))
    for node in nodes:
        node.uses = 0
    for x in (output, *(x for node in nodes for x in node.inputs)):
        x.uses += 1


def unknown(what: str) -> UserError:
    """Create the UserError for an operation that the ONNX export does not support."""
    return UserError(
        f"--format onnx: the model uses {what}, which the ONNX export does not "
        "support; choose --format stablehlo, which supports every model"
    )
