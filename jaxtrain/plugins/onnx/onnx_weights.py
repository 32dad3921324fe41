"""Kernels of an ONNX file in 8 or 4 bits, which it turns back into float32 to compute.

The file is smaller, and needs no images to be made: nothing that it computes is rounded
but the kernels. Each output channel has a scale of its own.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from jaxtrain.export import Precision

# The first whose DequantizeLinear takes 4 bits.
OPSET_INT4 = 21
# Operators whose second input is a kernel.
WITH_KERNELS = ("Conv", "MatMul", "Gemm")
# Largest values that are tried for 4 bits, as parts of the largest weight: few levels
# are better spent on the many small weights (Nagel et al. 2021, arXiv:2106.08295).
TRIED = np.linspace(0.4, 1.0, 61)


class Levels(NamedTuple):
    """The numbers that weights are rounded to, times a scale.

    Attributes:
      dtype: Dtype of the numbers.
      largest: Largest of them; the least is its negative.
      integers: Whether they are integers.
      tried: Parts of the largest weight that the largest number may stand for, of which
        the one with the least squared error is taken.
    """

    dtype: Any
    largest: float
    integers: bool
    tried: np.ndarray = np.ones(1)

    def of(self, weights: np.ndarray) -> np.ndarray:
        """Return the numbers, float32, that weights in units of a scale round to."""
        if self.integers:
            return np.clip(np.rint(weights), -self.largest, self.largest)
        clipped = np.clip(weights, -self.largest, self.largest)
        return clipped.astype(self.dtype).astype(np.float32)


LEVELS: Mapping[Precision, Levels] = {
    "int8_weights": Levels(np.int8, 127, True),
    "fp8_weights": Levels(ml_dtypes.float8_e4m3fn, 448, False),
    "int4_weights": Levels(ml_dtypes.int4, 7, True, TRIED),
}


def rounded(kernel: np.ndarray, levels: Levels) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers that a kernel is rounded to, and their scales.

    Args:
      kernel: Weights, float32 (outputs, inputs).
      levels: Numbers that they are rounded to.

    Returns:
      The numbers, float32 (outputs, inputs), and the scale of each output, float32.
    """
    most = np.abs(kernel).max(1, keepdims=True)
    # An output without weights has any scale.
    most = np.where(most > 0, most, 1)

    scales = [
        (part * most / levels.largest).astype(np.float32) for part in levels.tried
    ]
    errors = [np.square(levels.of(kernel / x) * x - kernel).sum(1) for x in scales]
    chosen = np.argmin(np.stack(errors), 0)
    scale = np.stack(scales)[chosen, np.arange(len(kernel))]
    return levels.of(kernel / scale), scale[:, 0]


def round_kernels(model: Any, precision: Precision) -> None:
    """Round the kernels of an ONNX model in its place."""
    import onnx

    graph, levels = model.graph, LEVELS[precision]
    constants = {x.name: x for x in graph.initializer}
    places: dict[str, int] = {}
    for node in graph.node:
        if node.op_type in WITH_KERNELS and node.input[1] in constants:
            places[node.input[1]] = _output_dim(node, constants[node.input[1]])
    others = [x for x in graph.initializer if x.name not in places]
    nodes = []
    for name, dim in places.items():
        weights = np.moveaxis(onnx.numpy_helper.to_array(constants[name]), dim, 0)
        numbers, scale = rounded(weights.reshape(len(weights), -1), levels)
        numbers = np.moveaxis(numbers.reshape(weights.shape), 0, dim)
        stored = np.ascontiguousarray(numbers).astype(levels.dtype)
        others += [
            onnx.numpy_helper.from_array(stored, f"{name}_rounded"),
            onnx.numpy_helper.from_array(scale, f"{name}_scale"),
        ]
        nodes.append(
            onnx.helper.make_node(
                "DequantizeLinear",
                [f"{name}_rounded", f"{name}_scale"],
                [name],
                axis=dim,
            )
        )
    nodes += graph.node
    for field, values in ((graph.initializer, others), (graph.node, nodes)):
        kept = [*values]
        del field[:]
        field.extend(kept)


def _output_dim(node: Any, kernel: Any) -> int:
    """Return the dim of a kernel's outputs."""
    if node.op_type == "Conv":
        return 0
    transposed = any(a.name == "transB" and a.i for a in node.attribute)
    return 0 if transposed else len(kernel.dims) - 1
