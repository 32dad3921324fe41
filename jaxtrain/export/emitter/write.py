"""The file: operators, constants, inputs and outputs of ONNX."""

from typing import Any

import numpy as np

from jaxtrain.export.emitter.graph import Node
from jaxtrain.export.needs import need

# Of 2021: has LayerNormalization, and every runtime in use reads it.
OPSET = 17
# The first whose convolutions and pools take bfloat16.
OPSET_BFLOAT16 = 22
# From this on, reductions take their axes as an input.
OPSET_AXES = 18


class Writer:
    """Collects the operators of a graph."""

    def __init__(self, opset: int = OPSET):
        self.onnx = need("onnx")
        self.opset = opset
        self._nodes: list[Any] = []
        self._constants: dict[Any, Any] = {}
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []

    def type_of(self, dtype: np.dtype) -> int:
        """Return ONNX's number of a dtype."""
        return self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))

    def add(self, op: str, inputs: list[str], **attributes: Any) -> str:
        """Add an operator; return the name of its output."""
        name = f"{op}_{len(self._nodes)}"
        self._nodes.append(
            self.onnx.helper.make_node(op, inputs, [name], name, **attributes)
        )
        return name

    def reduce(self, op: str, name: str, axes: list[int], keepdims: bool) -> str:
        """Add a reduction."""
        if op == "ReduceSum" or self.opset >= OPSET_AXES:
            given = self.constant(np.array(axes, np.int64), np.dtype(np.int64))
            return self.add(op, [name, given], keepdims=int(keepdims))
        return self.add(op, [name], axes=axes, keepdims=int(keepdims))

    def constant(self, array: np.ndarray, dtype: np.dtype) -> str:
        """Add a constant, rounded; return its name. The same one is added once."""
        array = np.ascontiguousarray(np.asarray(array).astype(dtype))
        key = (array.shape, str(dtype), array.tobytes())
        if key not in self._constants:
            name = f"constant_{len(self._constants)}"
            self._constants[key] = self.onnx.numpy_helper.from_array(array, name)
        return self._constants[key].name

    def input(self, name: str, node: Node) -> None:
        """Add an input."""
        self._inputs.append(self._info(name, node))

    def output(self, name: str, source: str, node: Node) -> None:
        """Add an output, which is `source` by its own name."""
        if any(source in proto.output for proto in self._nodes):
            for proto in self._nodes:
                for names in (proto.input, proto.output):
                    for place, used in enumerate(names):
                        names[place] = name if used == source else used
        else:
            self._nodes.append(self.onnx.helper.make_node("Identity", [source], [name]))
        self._outputs.append(self._info(name, node))

    def _info(self, name: str, node: Node) -> Any:
        shape = [n if isinstance(n, int) else "batch" for n in node.shape]
        helper = self.onnx.helper
        return helper.make_tensor_value_info(name, self.type_of(node.dtype), shape)

    def model(self, metadata: dict[str, str]) -> Any:
        """Return the whole as a ModelProto, which ONNX's own checker has passed."""
        helper = self.onnx.helper
        graph = helper.make_graph(
            self._used(),
            "jaxtrain",
            self._inputs,
            self._outputs,
            list(self._constants.values()),
        )
        model = helper.make_model(
            graph,
            producer_name="jaxtrain",
            opset_imports=[helper.make_opsetid("", self.opset)],
            ir_version=helper.find_min_ir_version_for(
                [helper.make_opsetid("", self.opset)]
            ),
        )
        helper.set_model_props(model, metadata)
        return model

    def _used(self) -> list[Any]:
        """Return the operators that the outputs need; drop the others' constants."""
        needed = {info.name for info in self._outputs}
        used = []
        for node in reversed(self._nodes):
            if needed.intersection(node.output):
                needed.update(node.input)
                used.append(node)
        self._constants = {
            key: c for key, c in self._constants.items() if c.name in needed
        }
        return used[::-1]
