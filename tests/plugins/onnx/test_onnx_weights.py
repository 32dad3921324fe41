"""Kernels of 8 and 4 bits in ONNX files: what they are, and what the file puts out."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import ModelProto, TensorProto, checker, helper, numpy_helper

from jaxtrain.export import Precision
from jaxtrain.plugins.onnx.onnx_weights import LEVELS, round_kernels, rounded
from tests.helpers.rows import each_row

PRECISIONS: tuple[Precision, ...] = ("int8_weights", "fp8_weights", "int4_weights")


def step_of(precision: Precision, weights: np.ndarray) -> np.ndarray:
    """Return the most that a weight of an output may be moved by, (outputs, inputs)."""
    most = np.abs(weights).max(1, keepdims=True)
    if precision == "int8_weights":
        return np.broadcast_to(most / 254, weights.shape)
    # Three bits behind the first of a number, and 2**-10 below the least normal one.
    return np.maximum(np.abs(weights) / 16, most / 448 * 2**-10)


@each_row("precision", ["int8_weights", "fp8_weights"])
def test_a_weight_is_moved_by_half_a_step(precision: Precision):
    weights = np.random.default_rng(0).standard_normal((5, 90)).astype(np.float32)
    weights[3] = 0
    numbers, scale = rounded(weights, LEVELS[precision])
    found = numbers * scale[:, None]
    assert (np.abs(found - weights) <= 1.001 * step_of(precision, weights)).all()
    assert not found[3].any() and np.isfinite(scale).all()
    # The largest of an output stays what it is.
    most = np.abs(weights).argmax(1)
    rows = np.arange(5)
    np.testing.assert_allclose(found[rows, most], weights[rows, most], rtol=1e-6)


def test_four_bits_have_the_scale_of_the_least_error():
    weights = np.random.default_rng(0).laplace(size=(4, 500)).astype(np.float32)
    numbers, scale = rounded(weights, LEVELS["int4_weights"])
    assert set(np.unique(numbers)) <= set(range(-7, 8))

    def error(scale: np.ndarray) -> np.ndarray:
        found = np.clip(np.rint(weights / scale), -7, 7) * scale
        return np.square(found - weights).sum(1)

    most = np.abs(weights).max(1, keepdims=True)
    every = np.stack([error(part * most / 7) for part in np.linspace(0.4, 1, 200)])
    ours = error(scale[:, None])
    assert (ours < 0.75 * error(most / 7)).all()
    # Of 200 parts some lie between the 61 that are tried.
    assert (ours <= 1.02 * every.min(0)).all()


def model_of(
    operator: str, kernel: np.ndarray, rank: int, **attributes: Any
) -> ModelProto:
    """Return a model of one operator with a kernel, on arrays of so many dims."""
    node = helper.make_node(operator, ["x", "kernel"], ["y"], **attributes)
    dims = [None] * rank
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, dims) for n in "xy"]
    constants = [numpy_helper.from_array(kernel, "kernel")]
    graph = helper.make_graph([node], "one", ends[:1], ends[1:], constants)
    return helper.make_model_gen_version(
        graph, opset_imports=[helper.make_opsetid("", 21)]
    )


@pytest.mark.parametrize("precision", PRECISIONS)
@each_row(
    ("operator", "shape", "dim", "inputs", "attributes"),
    [
        ("Conv", (6, 3, 3, 3), 0, (2, 3, 8, 8), {}),
        ("Conv", (4, 1, 3, 3), 0, (2, 4, 8, 8), {"group": 4}),
        ("MatMul", (70, 5), 1, (8, 70), {}),
        ("Gemm", (70, 5), 1, (8, 70), {}),
        ("Gemm", (5, 70), 0, (8, 70), {"transB": 1}),
    ],
)
def test_each_output_has_its_scale(
    precision: Precision,
    operator: str,
    shape: tuple[int, ...],
    dim: int,
    inputs: tuple[int, ...],
    attributes: dict[str, int],
):
    """Outputs of sizes from 1 to 1000: one scale for all would round most to 0."""
    import onnxruntime

    rng, sizes = np.random.default_rng(0), np.logspace(0, 3, shape[dim])
    spread = sizes.reshape([-1 if i == dim else 1 for i in range(len(shape))])
    kernel = (rng.standard_normal(shape) * spread).astype(np.float32)
    x = rng.standard_normal(inputs).astype(np.float32)

    def run(model: Any) -> np.ndarray:
        session = onnxruntime.InferenceSession(model.SerializeToString())
        found = np.asarray(session.run(None, {"x": x})[0])
        return np.moveaxis(found, 1, 0).reshape(shape[dim], -1)

    model = model_of(operator, kernel, x.ndim, **attributes)
    wanted = run(model)
    round_kernels(model, precision)
    checker.check_model(model, full_check=True)
    found = run(model)
    away = np.linalg.norm(found - wanted, axis=1) / np.linalg.norm(wanted, axis=1)
    # Rounding is uniform in a step, and deviates by 0.29 of it: of the largest weight
    # 1/127 and 1/7, of each weight 1/8 and less. Three times that is allowed.
    allowed = {"int8_weights": 0.02, "fp8_weights": 0.06, "int4_weights": 0.3}
    assert away.max() < allowed[precision]
    assert away.min() > 0
    kinds = {x.name: x.data_type for x in model.graph.initializer}
    assert "kernel" not in kinds and kinds["kernel_scale"] == TensorProto.FLOAT


def test_bytes_are_those_of_the_numbers():
    rng = np.random.default_rng(0)
    kernel = rng.standard_normal((64, 64, 3, 3)).astype(np.float32)
    sizes = {}
    for precision in PRECISIONS:
        model = model_of("Conv", kernel, 4)
        round_kernels(model, precision)
        sizes[precision] = len(model.SerializeToString())
    # Scales, names and the graph take 256 bytes and some hundred.
    for precision, bits in zip(PRECISIONS, (8, 8, 4), strict=True):
        assert 0 < sizes[precision] - kernel.size * bits / 8 < 800
    assert LEVELS["int4_weights"].dtype == ml_dtypes.int4
