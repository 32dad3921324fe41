"""Interface and table of export formats."""

import abc
from pathlib import Path
from typing import ClassVar

from jaxtrain.errors import UserError
from jaxtrain.export import Precision
from jaxtrain.export.request import Request, Runner
from jaxtrain.plugin import Table


class Exporter(abc.ABC):
    """An export format: writes files, and runs them to check their outputs.

    Attributes:
      precisions: Supported compute precisions.
      has_integers: Whether the format stores the int8 kernels and activation ranges of
        quantization-aware training (`model.quantize`).
      is_folder: Whether the output is a directory rather than a file.
      default_batch: Default batch size. None means any batch size.
      untimed: Reason why some files are not timed (see `is_timed`), for messages.
    """

    precisions: ClassVar[tuple[Precision, ...]] = ("fp32", "bf16", "fp16")
    has_integers: ClassVar[bool] = False
    is_folder: ClassVar[bool] = False
    default_batch: ClassVar[int | None] = None
    untimed: ClassVar[str] = ""

    def check_installed(self) -> None:  # noqa: B027 (most need no library)
        """Raise UserError if a library for writing or running the files is missing."""

    def check_request(self, request: Request) -> None:  # noqa: B027
        """Raise UserError if the format does not support the request."""

    def is_timed(self, request: Request) -> bool:
        """Whether to time the file. False if users run it in another runtime."""
        return True

    @abc.abstractmethod
    def write(self, request: Request, path: Path) -> None:
        """Write the file, or the contents of a new directory.

        Raises:
          UserError: The format lacks operators that the model needs.
        """

    @abc.abstractmethod
    def load(self, path: Path, request: Request) -> Runner:
        """Return a function that runs the file: (NumPy images) -> NumPy outputs."""


EXPORTERS: Table[type[Exporter]] = Table(
    "exporters",
    {
        "stablehlo": "jaxtrain.export.stablehlo:StableHLOFile",
        "saved": "jaxtrain.export.stablehlo:SavedFolder",
    },
)


def find_exporter(format: str) -> Exporter:
    """Return the exporter of a format; raise UserError if the format is unknown."""
    if format not in EXPORTERS:
        known = ", ".join([*EXPORTERS, "safetensors"])
        raise UserError(f"--format {format}: expected one of {known}")
    return EXPORTERS[format]()


def check_precision(format: str, precision: Precision) -> None:
    """Raise UserError if a format does not support a precision."""
    known = find_exporter(format).precisions
    if precision not in known:
        others = [name for name in EXPORTERS if precision in EXPORTERS[name].precisions]
        have = f"; {precision} needs --format {' or '.join(others)}" if others else ""
        raise UserError(
            f"--precision {precision}: --format {format} supports "
            f"{', '.join(known)}{have}"
        )
