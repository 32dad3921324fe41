"""An export, top to bottom: write under another name, check, and rename."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import jax
import numpy as np

from jaxtrain import extras
from jaxtrain.errors import UserError
from jaxtrain.export import IN_INTEGERS, Precision
from jaxtrain.export.check import Check, check
from jaxtrain.export.formats import litert, onnx_file, onnx_weights, stablehlo
from jaxtrain.export.request import Request, Runner
from jaxtrain.invocation import command
from jaxtrain.records.whole import reported, whole

# What writes a request to a file, and what loads the file.
FORMATS: Mapping[str, tuple[Callable[..., None], Callable[..., Runner]]] = {
    "litert": (litert.write, litert.load),
    "onnx": (onnx_file.write, onnx_file.load),
    "saved": (stablehlo.write_folder, stablehlo.load_folder),
    "stablehlo": (stablehlo.write_file, stablehlo.load_file),
}
# Images of a check where ONNX's own, slow evaluator runs the file.
SLOW_IMAGES = 8


def check_arguments(format: str, precision: Precision | None, out: Path) -> None:
    """Check that a new file can be written; no model is needed for it.

    Raises:
      UserError: something is there already, or there is no such folder; a library is
        missing; or the format has no such precision.
    """
    if os.path.lexists(out):
        raise UserError(f"--out {out} is there already: remove it, or choose another")
    if not os.path.isdir(out.parent):
        raise UserError(f"--out {out}: there is no folder {out.parent}; create it")
    if not os.access(out.parent, os.W_OK | os.X_OK):
        raise UserError(f"--out {out}: {out.parent} is read-only; choose another")
    needed = ("onnx", "onnxruntime") if format == "onnx" else ()
    if library := extras.missing(*needed):
        raise UserError(
            f"--format onnx needs {library}, which is not installed: "
            f"{extras.install('export')}"
        )
    if format == "litert":
        litert.LITERT.find()
        if precision in ("fp16", "bf16"):
            raise UserError(
                f"--precision {precision}: --format litert has fp32, which GPUs of "
                "phones compute with in fp16 by themselves; choose it, or onnx"
            )
    if format != "onnx" and precision in onnx_weights.LEVELS:
        raise UserError(
            f"--precision {precision}: only --format onnx has it; choose fp32, or onnx"
        )
    if format not in IN_INTEGERS and precision == "int8":
        raise UserError(
            "--precision int8: only --format onnx and litert have it; choose fp32, "
            "bf16 or fp16"
        )


def export(format: str, request: Request, out: Path, images: np.ndarray) -> Check:
    """Write a model to a file, which computes what the model does, or write nothing.

    Args:
      format: kind of file.
      request: what it holds.
      out: the file, or the folder.
      images: as the file takes them; it is checked on them.

    Returns:
      What the check has found.

    Raises:
      UserError: the format cannot hold the model, or the file not be written.
      ExportError: the file does not compute what the model does.
    """
    write, load = FORMATS[format]
    _check_model(format, request)
    if request.model.description.sound is not None and format == "saved":
        raise UserError(
            "--format saved: its script prepares images, and the model hears sounds; "
            "choose stablehlo or onnx"
        )
    check_arguments(format, request.precision, out)  # again: loading took a while
    folder, slow = format == "saved", format == "onnx" and request.precision == "bf16"
    with whole("--out", out, folder=folder) as partial, reported("--out", out):
        write(request, partial)
        run = load(partial, request)
        return check(
            request, run, images[: SLOW_IMAGES if slow else None], timed=not slow
        )


def _check_model(format: str, request: Request) -> None:
    """Check that the model puts out one array, which the precision can hold."""
    model = request.model
    if model.readout is not None and request.precision == "int8":
        raise UserError(
            f"--precision int8: task = {model.description.task!r} has numbers in the "
            "units of the data, which would be rounded to 256 steps; choose fp32, bf16 "
            "or fp16"
        )
    if model.finder is not None and request.precision == "int8":
        raise UserError(
            f"--precision int8: task = {model.description.task!r} has boxes in pixels, "
            "which would be rounded to 256 steps; choose fp32, bf16 or fp16"
        )
    rounded = model.description.model.quantize
    in_integers = format in IN_INTEGERS
    if rounded is not None and in_integers and request.precision != "int8":
        raise UserError(
            f"--precision {request.precision}: the model was trained with "
            f"model.quantize = {rounded!r}, and its file computes with these integers; "
            "choose int8, or leave --precision out"
        )
    if rounded is None and format == "litert" and request.precision == "int8":
        raise UserError(
            "--precision int8: --format litert writes the integers of a model that has "
            f"them; make one by {command('quantize')}, or train with model.quantize = "
            "'int8'"
        )
    if model.finder is None and request.nms:
        raise UserError(
            f"--include-nms: task = {model.description.task!r} finds no boxes; leave "
            "it out"
        )
    if model.finder is None and not hasattr(model.outputs, "shape"):
        shapes = jax.tree.map(lambda x: x.shape[1:], model.outputs)
        raise UserError(
            f"task = {model.description.task!r} has outputs of the shapes {shapes} for "
            "an image, and an exported file has one array: give the model a task with "
            "one of them"
        )
    if request.batch is None and format == "litert":
        raise UserError(
            "--batch dynamic: a file of LiteRT takes one number of images; give it, or "
            "leave --batch out, for 1"
        )
