"""ONNX: the model as operators that other runtimes know."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxtrain.export.emitter.lower import lower
from jaxtrain.export.emitter.simplify import simplify
from jaxtrain.export.emitter.trace import trace
from jaxtrain.export.emitter.write import OPSET, OPSET_BFLOAT16, Writer
from jaxtrain.export.formats import int8
from jaxtrain.export.needs import need
from jaxtrain.export.request import Request, Runner

# Images of a check where ONNX's own, slow evaluator runs the file.
SLOW_IMAGES = 8


def emit(
    function: Callable[[jax.Array], jax.Array],
    image_shape: tuple[int, int, int],
    *,
    dtype: Any,
    batch: int | None = None,
    opset: int = OPSET,
    names: tuple[str, str] = ("images", "logits"),
    metadata: dict[str, str] | None = None,
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

    Raises:
      UserError: the function uses what the export does not know.
    """
    images, output = trace(function, image_shape, dtype, batch)
    writer = Writer(opset)
    lower(images, simplify(output), names, writer)
    return writer.model(metadata or {})


def check_request(request: Request) -> None:
    """Check that all libraries are there.

    Raises:
      UserError: one is not.
    """
    need("onnx")
    need("onnxruntime")


def write(request: Request, path: Path) -> None:
    """Write the file.

    Raises:
      UserError: the model uses what the export does not know.
    """
    program = request.program()
    model = emit(
        program,
        program.image_shape,
        dtype=program.dtype,
        batch=request.batch,
        opset=OPSET_BFLOAT16 if request.precision == "bf16" else OPSET,
        names=("images", program.output),
        metadata={"jaxtrain": json.dumps(request.about())},
    )
    need("onnx.checker").check_model(model, full_check=True)
    path.write_bytes(model.SerializeToString())
    if request.precision == "int8":
        assert request.calibration is not None
        int8.quantize(path, request.calibration, request.batch)


def load(path: Path, request: Request) -> Runner:
    """Return what runs the file: ONNX Runtime on the CPU.

    It has no convolutions of bfloat16 there; ONNX's own evaluator has.
    """
    if request.precision == "bf16":
        model = need("onnx.reference").ReferenceEvaluator(str(path))
    else:
        runtime = need("onnxruntime")
        options = runtime.SessionOptions()
        options.log_severity_level = 3  # errors
        model = runtime.InferenceSession(
            str(path), options, providers=["CPUExecutionProvider"]
        )

    def run(images: np.ndarray) -> np.ndarray:
        return np.asarray(model.run(None, {"images": images})[0])

    return run


def slow_images(request: Request) -> int | None:
    """Return how many images a check runs if the runtime is slow; None: it is not."""
    return SLOW_IMAGES if request.precision == "bf16" else None
