"""The interface of a format of files, and the formats by name."""

import abc
from pathlib import Path
from typing import ClassVar

from jaxtrain.errors import UserError
from jaxtrain.export import Precision
from jaxtrain.export.request import Request, Runner
from jaxtrain.plugin import Table


class Exporter(abc.ABC):
    """A format: writes a file, and runs it as a user of the file would.

    Attributes:
      precisions: Precisions of the numbers that its files compute with.
      has_integers: Whether it writes the integers of a model that was trained with
        `model.quantize`.
      is_folder: Whether it writes a folder rather than a file.
      default_batch: Images at a time unless the user says otherwise. None: any number.
      untimed: Reason for which some files are not timed (see `is_timed`).
    """

    precisions: ClassVar[tuple[Precision, ...]] = ("fp32", "bf16", "fp16")
    has_integers: ClassVar[bool] = False
    is_folder: ClassVar[bool] = False
    default_batch: ClassVar[int | None] = None
    untimed: ClassVar[str] = ""

    def check_installed(self) -> None:  # noqa: B027 (most need no library)
        """Raise UserError if a library is missing that writes or runs the files."""

    def check_request(self, request: Request) -> None:  # noqa: B027
        """Raise UserError if the format cannot hold what is asked for."""

    def is_timed(self, request: Request) -> bool:
        """Whether the program that checks a file is one that a user would run."""
        return True

    @abc.abstractmethod
    def write(self, request: Request, path: Path) -> None:
        """Write a file, or fill a new folder.

        Raises:
          UserError: The format has no operators for the model.
        """

    @abc.abstractmethod
    def load(self, path: Path, request: Request) -> Runner:
        """Return a function that runs the file: images to outputs, in NumPy."""


EXPORTERS: Table[type[Exporter]] = Table(
    "exporters",
    {
        "stablehlo": "jaxtrain.export.stablehlo:StableHLOFile",
        "saved": "jaxtrain.export.stablehlo:SavedFolder",
    },
)


def find_exporter(format: str) -> Exporter:
    """Return the exporter of a format."""
    if format not in EXPORTERS:
        known = ", ".join([*EXPORTERS, "safetensors"])
        raise UserError(f"--format {format}: expected one of {known}")
    return EXPORTERS[format]()


def check_precision(format: str, precision: Precision) -> None:
    """Raise UserError if a format has no such precision."""
    known = find_exporter(format).precisions
    if precision not in known:
        others = [name for name in EXPORTERS if precision in EXPORTERS[name].precisions]
        have = f"; {precision} is of {', '.join(others)}" if others else ""
        raise UserError(
            f"--precision {precision}: --format {format} has {', '.join(known)}{have}"
        )
