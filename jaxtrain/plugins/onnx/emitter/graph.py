"""The graph between a jaxpr and ONNX: each node is the one array that it computes."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxtrain.errors import UserError

# Dims are numbers, or symbolic ones of `jax.export`.
Shape = tuple[Any, ...]


@dataclass(eq=False)
class Node:
    """An array, and how it is computed.

    Operators and attributes are named as in ONNX where they mean the same, but images
    lie as in JAX, (batch, rows, columns, channels), and kernels (rows, columns, in,
    out). Operators on elements broadcast as in NumPy: their operands have one rank, or
    are scalars.

    Attributes:
      op: the operator; "Input" and "Constant" have no inputs.
      inputs: what it takes.
      shape: of the result.
      dtype: of the result.
      attributes: of the operator.
      value: of a constant, in NumPy. Its precision may be more than that of `dtype`:
        numbers are folded before they are rounded, once.
      uses: how many nodes take it.
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
        """The one number that a constant is; None: it is several, or computed."""
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
    """Return a size as an int of Python, but for a symbolic one."""
    return int(size) if isinstance(size, np.integer) else size


def constant(value: Any, dtype: Any = None) -> Node:
    """Return a constant; `dtype` is what it is rounded to in the end."""
    value = np.asarray(value)
    dtype = value.dtype if dtype is None else dtype
    return Node("Constant", (), value.shape, dtype, value=value)


def elementwise(op: str, *inputs: Node, dtype: Any = None, **attributes: Any) -> Node:
    """Return an operator on elements, of the shape that its inputs broadcast to."""
    rank = max(len(x.shape) for x in inputs)
    padded = [(1,) * (rank - len(x.shape)) + x.shape for x in inputs]
    dims = zip(*padded, strict=True)
    shape = tuple(next((size for size in sizes if size != 1), 1) for sizes in dims)
    dtype = inputs[0].dtype if dtype is None else dtype
    return Node(op, inputs, shape, dtype, attributes)


def cast(x: Node, dtype: Any) -> Node:
    """Return `x` in another dtype. Floats stay as precise as they are in constants."""
    if x.dtype == dtype:
        return x
    if x.is_constant:
        precise = x.is_float and jnp.issubdtype(dtype, jnp.floating)
        return constant(x.value if precise else x.value.astype(dtype), dtype)
    return elementwise("Cast", x, dtype=dtype)


def reshape(x: Node, shape: Shape) -> Node:
    """Return `x` in another shape; constants at once."""
    if x.shape == tuple(shape):
        return x
    if x.is_constant:
        return constant(x.value.reshape(shape), x.dtype)
    return Node("Reshape", (x,), shape, x.dtype)


def transpose(x: Node, order: tuple[int, ...]) -> Node:
    """Return `x` with its dims in another order; constants at once."""
    if order == tuple(range(len(order))):
        return x
    if x.is_constant:
        return constant(x.value.transpose(order), x.dtype)
    shape = tuple(x.shape[d] for d in order)
    return Node("Transpose", (x,), shape, x.dtype, {"order": order})


def full(x: Node, shape: Shape) -> Node:
    """Return `x`, some of whose dims may be 1, in the shape that it stands for."""
    if x.shape == tuple(shape):
        return x
    if x.is_constant and all(isinstance(d, int) for d in shape):
        return constant(np.broadcast_to(x.value, shape), x.dtype)
    return Node("Expand", (x,), shape, x.dtype)


def ordered(output: Node) -> Iterator[Node]:
    """Yield all nodes that `output` needs, each after its inputs."""
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
    """Count how many nodes take each of those that `output` needs."""
    nodes = list(ordered(output))
    for node in nodes:
        node.uses = 0
    for x in (output, *(x for node in nodes for x in node.inputs)):
        x.uses += 1


def unknown(what: str) -> UserError:
    """Return the error of a model that does something for which there is no rule."""
    return UserError(
        f"--format onnx: the model uses {what}, which the export to ONNX does not "
        "know; --format stablehlo takes every model"
    )
