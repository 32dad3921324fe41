"""Writer of ONNX files: operators, constants and layouts."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxtrain.plugins.onnx.emitter.graph import Node, Shape, unknown

# Opset of 2022, the first with LayerNormalization; all current runtimes support it.
OPSET = 17
# First opset with bfloat16 convolutions and pooling.
OPSET_BFLOAT16 = 22

# Dim i of the ONNX array is dim order[i] of the node.
Order = tuple[int, ...]


def straight(rank: int) -> Order:
    """Identity permutation: the dim order of JAX."""
    return tuple(range(rank))


def channels_first(rank: int) -> Order:
    """Dim order of images in ONNX, (batch, channels, rows, ...)."""
    return (0, rank - 1, *range(1, rank - 1))


def filled(shape: Shape, order: Order) -> list[int]:
    """Memory layout of an array: its dims in `order`, without dims of size 1."""
    return [d for d in order if shape[d] != 1]


class Writer:
    """Writer of the operators of a graph.

    An array that is written in several dim orders has one name per order.

    Attributes:
      opset: Version of the operators.
      integers: Whether kernels of quantization-aware training are written as integers.
    """

    def __init__(self, opset: int = OPSET, *, integers: bool = False):
        import onnx  # onnx is an optional dependency

        self.onnx: Any = onnx
        self.opset = opset
        self.integers = integers
        # (operator, input names, output names, attributes)
        self._operators: list[tuple[str, list[str], list[str], dict[str, Any]]] = []
        self._constants: dict[Any, Any] = {}
        # Node -> dim order -> name in the file. A node is computed in its first order.
        self._names: dict[Node, dict[Order, str]] = {}

    def type_of(self, dtype: Any) -> int:
        """Convert a dtype to ONNX's element type (enum `TensorProto.DataType`)."""
        return self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))

    def add(self, op: str, inputs: list[str], **attributes: Any) -> str:
        """Add an operator; return the name of its output."""
        name = f"{op}_{len(self._operators)}"
        self._operators.append((op, inputs, [name], attributes))
        return name

    def add_pair(
        self, op: str, inputs: list[str], **attributes: Any
    ) -> tuple[str, str]:
        """Add an operator with two outputs; return their names."""
        first = f"{op}_{len(self._operators)}"
        self._operators.append((op, inputs, [first, f"{first}_2"], attributes))
        return first, f"{first}_2"

    def constant(self, values: Any, dtype: Any = np.int64) -> str:
        """Add a constant, rounded to `dtype`, unless it exists; return its name."""
        array = np.asarray(values).astype(dtype, order="C")
        key = (array.shape, str(array.dtype), array.tobytes())
        if key not in self._constants:
            name = f"constant_{len(self._constants)}"
            self._constants[key] = self.onnx.numpy_helper.from_array(array, name)
        return self._constants[key].name

    def put(self, node: Node, order: Order, name: str) -> None:
        """Record the name and dim order of a node's written array."""
        self._names[node] = {order: name, **self._names.get(node, {})}

    def order_of(self, node: Node) -> Order:
        """Dim order in which a node is computed."""
        return next(iter(self._names[node]))

    def get(self, node: Node, order: Order | None = None) -> str:
        """Name of a node's array in a dim order, by default JAX's."""
        order = straight(len(node.shape)) if order is None else order
        if node.is_constant:
            return self.constant(node.value.transpose(order), node.dtype)
        names = self._names[node]
        if order not in names:
            names[order] = self._reorder(node, order)
        return names[order]

    def _reorder(self, node: Node, order: Order) -> str:
        have = self.order_of(node)
        name = self._names[node][have]
        if filled(node.shape, have) == filled(node.shape, order):
            return self.reshape(name, tuple(node.shape[d] for d in order))
        return self.add("Transpose", [name], perm=[have.index(d) for d in order])

    def reshape(self, name: str, shape: Sequence[Any]) -> str:
        """Add a reshape, with -1 for a symbolic batch dim; return the output's name."""
        known = [n if isinstance(n, int) else -1 for n in shape]
        if known.count(-1) > 1:
            raise unknown(f"a shape {shape} with the batch in two dims")
        return self.add("Reshape", [name, self.constant(known)])

    def model(
        self,
        images: Node,
        output: Node,
        names: tuple[str, str],
        metadata: dict[str, str],
    ) -> Any:
        """Build the ModelProto; `names` are the names of input and output."""
        helper, source = self.onnx.helper, self.get(output)
        if not any(source in outputs for _, _, outputs, _ in self._operators):
            source = self.add("Identity", [source])
        # Keep only the operators and constants that the output depends on.
        needed, nodes = {source}, []
        for op, inputs, outputs, attributes in reversed(self._operators):
            if needed.intersection(outputs):
                needed.update(inputs)
                ends = [
                    [names[1] if n == source else n for n in some]
                    for some in (inputs, outputs)
                ]
                nodes.append(helper.make_node(op, *ends, outputs[0], **attributes))
        infos = [
            helper.make_tensor_value_info(
                name,
                self.type_of(node.dtype),
                [n if isinstance(n, int) else "batch" for n in node.shape],
            )
            for name, node in zip(names, (images, output), strict=True)
        ]
        constants = [c for c in self._constants.values() if c.name in needed]
        model = helper.make_model_gen_version(
            helper.make_graph(nodes[::-1], "jaxtrain", infos[:1], infos[1:], constants),
            producer_name="jaxtrain",
            opset_imports=[helper.make_opsetid("", self.opset)],
        )
        helper.set_model_props(model, metadata)
        return model
