"""ONNX: the model as operators that other runtimes know."""

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

# Versions of the operators that know the numbers of a precision.
OPSETS: dict[str, int] = {"bf16": OPSET_BFLOAT16, **dict.fromkeys(LEVELS, OPSET_INT4)}
# Images of a batch that tells the ranges for int8, if a batch may have any number.
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
    """Return a function of images as an ONNX model.

    Args:
      function: (batch, rows, columns, channels) -> (batch, outputs).
      image_shape: rows, columns and channels.
      dtype: of the images.
      batch: images at a time; None: any number.
      opset: version of the operators.
      names: of input and output.
      metadata: what the file says of itself.
      limits: `Finder.limits`, to find boxes among the outputs, which are those of all
        places; None leaves them as they are.
      integers: Whether kernels that were rounded in training are written as integers.

    Raises:
      UserError: the function uses what the export does not know.
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
    """Operators of ONNX, which ONNX Runtime, TensorRT and OpenVINO run."""

    precisions = get_args(Precision)
    has_integers = True
    untimed = (
        "ONNX Runtime has no bfloat16 on the CPU, so that ONNX's own evaluator has "
        "checked the file"
    )

    def check_installed(self) -> None:
        if library := extras.missing("onnx", "onnxruntime"):
            raise UserError(
                f"--format onnx needs {library}, which is not installed: "
                f"{extras.install('export')}"
            )

    def is_timed(self, request: Request) -> bool:
        """Whether ONNX Runtime runs the file: it has no bfloat16 on the CPU."""
        return request.precision != "bf16"

    def write(self, request: Request, path: Path) -> None:
        write(request, path)

    def load(self, path: Path, request: Request) -> Runner:
        return load(path, request)


def write(request: Request, path: Path) -> None:
    """Write the file.

    Raises:
      UserError: the model uses what the export does not know.
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
    """Return what runs the file: ONNX Runtime on the CPU.

    It has no convolutions of bfloat16 there; ONNX's own evaluator has.
    """
    model: Any
    if request.precision == "bf16":
        from onnx.reference import ReferenceEvaluator

        model = ReferenceEvaluator(str(path))
    else:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3  # errors
        if request.precision in LEVELS:
            # Kernels become float32 when the file is loaded, and not in each call.
            options.add_session_config_entry("session.disable_quant_qdq", "1")
        providers = ["CPUExecutionProvider"]
        model = onnxruntime.InferenceSession(path, options, providers=providers)
    return lambda images: np.asarray(model.run(None, {"images": images})[0])


def _quantize(path: Path, images: np.ndarray, size: int) -> None:
    """Quantise an ONNX file in its place, by ONNX Runtime: products of 8-bit numbers.

    Weights get a scale for each output channel, activations one each, from the smallest
    and the largest number that they have on the images. The file says so in pairs of
    QuantizeLinear and DequantizeLinear (QDQ), which runtimes join with the operator
    between them.
    """
    from onnxruntime import quantization

    # Whole batches; of too few images, one that repeats the last.
    images = padded(images, max(size, len(images)))
    starts = range(0, len(images) - size + 1, size)
    batches = iter([{"images": images[start : start + size]} for start in starts])

    class Reader(quantization.CalibrationDataReader):
        def get_next(self) -> Any:
            return next(batches, None)

    # The library leaves files beside the one that it reads.
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
    """Keep the library from warning that the graph was not prepared: it was, by us."""
    logger = logging.getLogger()
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
