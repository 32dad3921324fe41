"""Weight-only quantization of ONNX files to 8 or 4 bits.

Kernels are stored as int8, float8 or int4, with a scale per output channel, and
dequantized to float32 at run time. Activations are not quantized, so no calibration
images are needed.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from jaxtrain.export import Precision

# First opset with 4-bit DequantizeLinear.
OPSET_INT4 = 21
# Operators with a kernel as second input.
WITH_KERNELS = ("Conv", "MatMul", "Gemm")
# Candidate clipping values for 4 bits, as fractions of the largest weight: clipping a
# few large weights makes the scale smaller (Nagel et al. 2021, arXiv:2106.08295).
TRIED = np.linspace(0.4, 1.0, 61)


class Levels(NamedTuple):
    """Quantization levels of weights, in units of the scale.

    Attributes:
      dtype: Dtype of the levels.
      largest: Largest level; the smallest level is -largest.
      integers: Whether the levels are integers.
      tried: Candidate clipping values, as fractions of the largest weight; the value
        with the smallest squared error is used.
    """

    dtype: Any
    largest: float
    integers: bool
    tried: np.ndarray = np.ones(1)

    def of(self, weights: np.ndarray) -> np.ndarray:
        """Round weights (in units of the scale) to the nearest levels, float32."""
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
    """Quantize a kernel with a scale per output channel.

    Args:
      kernel: Weights, float32 (outputs, inputs).
      levels: Quantization levels of the weights.

    Returns:
      Quantized weights in units of the scale, float32 (outputs, inputs), and the scale
      per output channel, float32 (outputs,).
    """
    most = np.abs(kernel).max(1, keepdims=True)
    # Avoid a scale of 0 for outputs whose weights are all 0.
    most = np.where(most > 0, most, 1)

    scales = [
        (part * most / levels.largest).astype(np.float32) for part in levels.tried
    ]
    errors = [np.square(levels.of(kernel / x) * x - kernel).sum(1) for x in scales]
    chosen = np.argmin(np.stack(errors), 0)
    scale = np.stack(scales)[chosen, np.arange(len(kernel))]
    return levels.of(kernel / scale), scale[:, 0]


def round_kernels(model: Any, precision: Precision) -> None:
    """Quantize the kernels of an ONNX model in place."""
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
    """Index of the output-channel dim of a node's kernel."""
    if node.op_type == "Conv":
        return 0
    transposed = any(a.name == "transB" and a.i for a in node.attribute)
    return 0 if transposed else len(kernel.dims) - 1
