"""ONNX export format."""

import contextlib
import dataclasses
import json
import logging
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import jax
import numpy as np

from jaxtrain import extras
from jaxtrain.errors import UserError
from jaxtrain.export import Precision
from jaxtrain.export.check import padded
from jaxtrain.export.exporter import Exporter
from jaxtrain.export.request import Request, Runner
from jaxtrain.plugins.onnx.emitter.detect import detected
from jaxtrain.plugins.onnx.emitter.operators import lower
from jaxtrain.plugins.onnx.emitter.simplify import simplify
from jaxtrain.plugins.onnx.emitter.trace import trace
from jaxtrain.plugins.onnx.emitter.write import OPSET, OPSET_BFLOAT16, Writer, straight
from jaxtrain.plugins.onnx.onnx_weights import LEVELS, OPSET_INT4, round_kernels

# Minimum opset per precision, if above `OPSET`.
OPSETS: dict[str, int] = {"bf16": OPSET_BFLOAT16, **dict.fromkeys(LEVELS, OPSET_INT4)}
# Calibration batch size for int8 with a dynamic batch dim.
BATCH = 32


def emit(
    function: Callable[[jax.Array], jax.Array],
    image_shape: tuple[int, int, int],
    *,
    dtype: Any,
    batch: int | None = None,
    opset: int = OPSET,
    names: tuple[str, str] = ("images", "logits"),
    metadata: dict[str, str] | None = None,
    limits: Mapping[str, Any] | None = None,
    integers: bool = False,
) -> Any:
    """Convert a function of images to an ONNX model.

    Args:
      function: Function (batch, rows, columns, channels) -> (batch, outputs).
      image_shape: Rows, columns and channels.
      dtype: Dtype of the images.
      batch: Number of images; None for a dynamic batch dim.
      opset: Version of the ONNX operators.
      names: Names of input and output.
      metadata: Metadata of the file.
      limits: `Finder.limits`, to add box decoding and NMS to the model; None exports
        the raw outputs.
      integers: Whether kernels of quantization-aware training are written as integers.

    Raises:
      UserError: The function uses an unsupported primitive.
    """
    images, output = trace(function, image_shape, dtype, batch)
    output = simplify(output)
    if limits is not None:
        output = detected(output, limits)
    writer = Writer(opset, integers=integers)
    writer.put(images, straight(len(images.shape)), names[0])
    lower(writer, images, output)
    return writer.model(images, output, names, metadata or {})


class ONNXFile(Exporter):
    """Exporter of ONNX files, for ONNX Runtime, TensorRT and OpenVINO."""

    precisions = get_args(Precision)
    has_integers = True
    untimed = (
        "ONNX Runtime does not support bfloat16 on the CPU, so the file was checked "
        "with ONNX's reference evaluator"
    )

    def check_installed(self) -> None:
        if library := extras.missing("onnx", "onnxruntime"):
            raise UserError(
                f"--format onnx needs {library}, which is not installed: "
                f"{extras.install('export')}"
            )

    def is_timed(self, request: Request) -> bool:
        """Whether ONNX Runtime can run the file on the CPU; False for bfloat16."""
        return request.precision != "bf16"

    def write(self, request: Request, path: Path) -> None:
        write(request, path)

    def load(self, path: Path, request: Request) -> Runner:
        return load(path, request)


def write(request: Request, path: Path) -> None:
    """Write the ONNX file of an export request.

    Raises:
      UserError: The model uses an unsupported primitive.
    """
    import onnx

    model = emit(
        dataclasses.replace(request, nms=False).function(),
        request.images.shape[1:],
        dtype=request.images.dtype,
        batch=request.batch,
        opset=OPSETS.get(request.precision, OPSET),
        names=("images", request.output),
        metadata={"jaxtrain": json.dumps(request.about())},
        limits=request.exported.limits,
        integers=request.was_rounded,
    )
    if request.precision in LEVELS:
        round_kernels(model, request.precision)
    onnx.checker.check_model(model, full_check=True)
    path.write_bytes(model.SerializeToString())
    if request.precision == "int8" and not request.was_rounded:
        assert request.calibration is not None
        _quantize(path, request.calibration, request.batch or BATCH)


def load(path: Path, request: Request) -> Runner:
    """Load an ONNX file into ONNX Runtime on CPU, to run batches of images.

    ONNX's reference evaluator runs bfloat16 files, as ONNX Runtime does not support
    bfloat16 on CPU.
    """
    model: Any
    if request.precision == "bf16":
        from onnx.reference import ReferenceEvaluator

        model = ReferenceEvaluator(str(path))
    else:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3  # errors only
        if request.precision in LEVELS:
            # Convert kernels to float32 once at load time, not in each call.
            options.add_session_config_entry("session.disable_quant_qdq", "1")
        providers = ["CPUExecutionProvider"]
        model = onnxruntime.InferenceSession(path, options, providers=providers)
    return lambda images: np.asarray(model.run(None, {"images": images})[0])


def _quantize(path: Path, images: np.ndarray, size: int) -> None:
    """Quantize an ONNX file to int8 in place, with ONNX Runtime.

    Weights have a scale per output channel. Activations have a scale per tensor, from
    their minimum and maximum on the images. The file contains QuantizeLinear and
    DequantizeLinear pairs (QDQ), which runtimes fuse with adjacent operators.
    """
    from onnxruntime import quantization

    # Use full batches; if there are too few images, the last image is repeated.
    images = padded(images, max(size, len(images)))
    starts = range(0, len(images) - size + 1, size)
    batches = iter([{"images": images[start : start + size]} for start in starts])

    class Reader(quantization.CalibrationDataReader):
        def get_next(self) -> Any:
            return next(batches, None)

    # The library leaves temporary files next to its input.
    with tempfile.TemporaryDirectory(dir=path.parent) as folder, _quiet():
        source = Path(folder) / "float.onnx"
        os.replace(path, source)
        quantization.quantize_static(
            str(source),
            str(path),
            Reader(),
            quant_format=quantization.QuantFormat.QDQ,
            per_channel=True,
            activation_type=quantization.QuantType.QUInt8,
            weight_type=quantization.QuantType.QInt8,
        )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence ONNX Runtime's advice to preprocess the graph, which is unnecessary."""
    logger = logging.getLogger()
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
