"""Export of a model: the file gets a temporary name, and is renamed after the check."""

import os
from pathlib import Path

import numpy as np

from jaxtrain.errors import UserError
from jaxtrain.export import Precision
from jaxtrain.export.check import Check, check
from jaxtrain.export.exporter import Exporter, check_precision, find_exporter
from jaxtrain.export.request import Request
from jaxtrain.records.atomic_output import atomic_output, reported

# Number of images to check if the runtime is too slow to be timed.
SLOW_IMAGES = 8


def check_format(format: str, precision: Precision | None) -> None:
    """Raise UserError for an unknown format or precision, or a missing library."""
    exporter = find_exporter(format)
    if precision is not None:
        check_precision(format, precision)
    exporter.check_installed()


def check_out(out: Path) -> None:
    """Raise UserError if the path exists, or its directory is missing or read-only."""
    if os.path.lexists(out):
        raise UserError(
            f"--out {out} already exists: remove the existing file, or choose another "
            "--out"
        )
    if not os.path.isdir(out.parent):
        raise UserError(
            f"--out {out}: the directory {out.parent} does not exist; create the "
            "directory"
        )
    if not os.access(out.parent, os.W_OK | os.X_OK):
        raise UserError(
            f"--out {out}: {out.parent} is read-only; choose another directory"
        )


def export(format: str, request: Request, out: Path, images: np.ndarray) -> Check:
    """Export a model to a file, and check the file against the model.

    If the check fails, nothing is written.

    Args:
      format: Name of the exporter.
      request: Model, precision and options.
      out: Path of the file or directory to write.
      images: Images in the file's input format, for the check.

    Returns:
      Result of the check.

    Raises:
      UserError: The format cannot represent the model, or writing fails.
      ExportError: The file does not compute the same outputs as the model.
    """
    exporter = find_exporter(format)
    _check_model(exporter, request)
    exporter.check_request(request)
    check_precision(format, request.precision)
    check_out(out)  # Check again, as the path may have been created meanwhile.
    timed = exporter.is_timed(request)
    output = atomic_output("--out", out, folder=exporter.is_folder)
    with output as partial, reported("--out", out):
        exporter.write(request, partial)
        run = exporter.load(partial, request)
        return check(
            request, run, images[: None if timed else SLOW_IMAGES], timed=timed
        )


def _check_model(exporter: Exporter, request: Request) -> None:
    """Raise UserError if the format or precision cannot represent the outputs."""
    model = request.model
    in_units = model.decoder.in_units
    if in_units is not None and request.precision == "int8":
        raise UserError(
            f"--precision int8: task = {model.description.task!r} predicts {in_units}, "
            "which int8 would round to 256 levels; choose fp32, bf16 or fp16"
        )
    rounded = model.description.model.quantize
    if rounded is not None and exporter.has_integers and request.precision != "int8":
        raise UserError(
            f"--precision {request.precision}: the model was trained with "
            f"model.quantize = {rounded!r}, so the exported file computes in int8; "
            "give --precision int8, or leave --precision out"
        )
    _ = request.exported  # Raise an error if the outputs cannot be exported.
