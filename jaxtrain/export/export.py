"""An export, top to bottom: write under another name, check, and rename."""

import os
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import jax
import numpy as np

from jaxtrain.errors import UserError
from jaxtrain.export.check import Check, check
from jaxtrain.export.formats import onnx_file, saved, stablehlo
from jaxtrain.export.request import Format, Request
from jaxtrain.records.whole import reported, whole

FORMATS: Mapping[Format, ModuleType] = {
    "onnx": onnx_file,
    "saved": saved,
    "stablehlo": stablehlo,
}


def check_out(out: Path) -> None:
    """Check that a new file can be written.

    Raises:
      UserError: something is there already, or there is no such folder.
    """
    if os.path.lexists(out):
        raise UserError(f"--out {out} is there already: remove it, or choose another")
    if not os.path.isdir(out.parent):
        raise UserError(f"--out {out}: there is no folder {out.parent}; create it")
    if not os.access(out.parent, os.W_OK | os.X_OK):
        raise UserError(f"--out {out}: {out.parent} is read-only; choose another")


def export(format: Format, request: Request, out: Path, images: np.ndarray) -> Check:
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
    kind = FORMATS[format]
    _check_outputs(request)
    kind.check_request(request)
    check_out(out)
    folder = format == "saved"
    with whole("--out", out, folder=folder) as partial, reported("--out", out):
        kind.write(request, partial)
        slow = kind.slow_images(request)
        run = kind.load(partial, request)
        return check(request, run, images[:slow], timed=slow is None)


def _check_outputs(request: Request) -> None:
    """Check that the model puts out one array.

    Raises:
      UserError: It puts out several.
    """
    model = request.model
    outputs = model.outputs
    if not hasattr(outputs, "shape"):
        shapes = jax.tree.map(lambda x: x.shape[1:], outputs)
        raise UserError(
            f"task = {model.description.task!r} has outputs of the shapes {shapes} for "
            "an image, and an exported file has one array: give the model a task with "
            "one of them"
        )
