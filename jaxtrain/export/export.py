"""An export, top to bottom: write under another name, check, and rename."""

import os
from pathlib import Path

import numpy as np

from jaxtrain.errors import UserError
from jaxtrain.export import Precision
from jaxtrain.export.check import Check, check
from jaxtrain.export.exporter import Exporter, check_precision, find_exporter
from jaxtrain.export.request import Request
from jaxtrain.records.whole import reported, whole

# Images of a check by a program that is too slow to be timed.
SLOW_IMAGES = 8


def check_format(format: str, precision: Precision | None) -> None:
    """Raise UserError if there is no such format or precision, or a library misses."""
    exporter = find_exporter(format)
    if precision is not None:
        check_precision(format, precision)
    exporter.check_installed()


def check_out(out: Path) -> None:
    """Raise UserError if something is there already, or there is no such folder."""
    if os.path.lexists(out):
        raise UserError(f"--out {out} is there already: remove it, or choose another")
    if not os.path.isdir(out.parent):
        raise UserError(f"--out {out}: there is no folder {out.parent}; create it")
    if not os.access(out.parent, os.W_OK | os.X_OK):
        raise UserError(f"--out {out}: {out.parent} is read-only; choose another")


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
    exporter = find_exporter(format)
    _check_model(exporter, request)
    exporter.check_request(request)
    check_precision(format, request.precision)
    check_out(out)  # again: loading took a while
    timed = exporter.is_timed(request)
    whole_out = whole("--out", out, folder=exporter.is_folder)
    with whole_out as partial, reported("--out", out):
        exporter.write(request, partial)
        run = exporter.load(partial, request)
        return check(
            request, run, images[: None if timed else SLOW_IMAGES], timed=timed
        )


def _check_model(exporter: Exporter, request: Request) -> None:
    """Check that the model puts out one array, which the precision can hold."""
    model = request.model
    in_units = model.decoder.in_units
    if in_units is not None and request.precision == "int8":
        raise UserError(
            f"--precision int8: task = {model.description.task!r} has {in_units}, "
            "which would be rounded to 256 steps; choose fp32, bf16 or fp16"
        )
    rounded = model.description.model.quantize
    if rounded is not None and exporter.has_integers and request.precision != "int8":
        raise UserError(
            f"--precision {request.precision}: the model was trained with "
            f"model.quantize = {rounded!r}, and its file computes with these integers; "
            "choose int8, or leave --precision out"
        )
    _ = request.exported  # Raises where the outputs have no such form.
