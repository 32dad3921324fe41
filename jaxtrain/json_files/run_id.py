"""Run ids, which show whether a file belongs to a run.

Each new run draws a random id and writes it to `config.json`. All other JSON files in
the workdir, and all checkpoints, repeat the id, because files of two runs can have
equal shapes, steps and digests.
"""

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from jaxtrain.errors import OtherRunError, UserError
from jaxtrain.json_files.read import RESTORE, read_object
from jaxtrain.json_files.typed import convert

T = TypeVar("T")

FIELD = "run_id"
CONFIG = "config.json"
# Number of hexadecimal digits of an id that messages show.
NUM_SHOWN = 8


@dataclass(frozen=True)
class RunId:
    """Id of a run, and the file that contains the id.

    Attributes:
      value: Id of 32 hexadecimal digits.
      source: Path of the run's `config.json`, for messages.
    """

    value: str
    source: str

    @classmethod
    def new(cls, workdir: Path) -> "RunId":
        """Draw a random id for a new run in `workdir`."""
        return cls(secrets.token_hex(16), str(workdir / CONFIG))

    @classmethod
    def read(cls, workdir: Path) -> "RunId":
        """Read the id of the run in `workdir`.

        Raises:
          UserError: `config.json` is missing, damaged, or has no id.
        """
        path = workdir / CONFIG
        values = read_object(path)
        if values is None:
            reason = "No such file or directory"
            raise UserError(f"{path} cannot be read ({reason}): {RESTORE}")
        return cls(_parse(values, str(path), RESTORE), str(path))

    def stamp(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of a JSON file, with the run id as the first field."""
        return {FIELD: self.value, **values}

    def check(self, values: Mapping[str, Any], where: str, advice: str) -> None:
        """Check that a JSON file belongs to this run.

        Args:
          values: Fields of the file.
          where: Path of the file, for messages.
          advice: Remedy for a file of another run.

        Raises:
          OtherRunError: The file has the id of another run.
          UserError: The file has no valid id.
        """
        run_id = _parse(values, where, advice)
        if run_id != self.value:
            raise OtherRunError(
                f"{where} belongs to run {run_id[:NUM_SHOWN]}, and {self.source} to "
                f"run {self.value[:NUM_SHOWN]}: {advice}"
            )


def read_of_run(
    path: Path, kind: type[T], run: RunId | None = None, *, advice: str = RESTORE
) -> T | None:
    """Read a JSON file and check its run id; return None if the file is missing.

    Args:
      path: Path of the file.
      kind: Type of the content without the id; see `typed.convert`.
      run: Run that the file must belong to. None accepts any run.
      advice: Remedy for a damaged file, or a file of another run.

    Raises:
      OtherRunError: The file belongs to another run.
      UserError: The file is unreadable or damaged, or its content is not of type
        `kind`.
    """
    values = read_object(path, advice=advice)
    if values is None:
        return None
    if run is not None:
        run.check(values, str(path), advice)
    values.pop(FIELD, None)
    try:
        return convert(values, kind, str(path))
    except UserError as error:
        raise UserError(f"{error}: {advice}") from None


def _parse(values: Mapping[str, Any], where: str, advice: str) -> str:
    value = values.get(FIELD)
    if isinstance(value, str) and re.fullmatch("[0-9a-f]{32}", value):
        return value
    shown = "is missing" if value is None else f"= {str(value)[:NUM_SHOWN]!r}"
    raise UserError(
        f"{where}: {FIELD} {shown}; expected a run id of 32 hex digits: {advice}"
    )
