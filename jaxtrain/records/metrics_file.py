"""Writing, truncating and reading `metrics.jsonl`, which has a JSON object per line."""

import contextlib
import json
import time
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from jaxtrain import atomic_file, links
from jaxtrain.console import print_stderr
from jaxtrain.errors import UserError, first_of
from jaxtrain.json_files import typed
from jaxtrain.json_files.read import parse_object
from jaxtrain.json_files.write import finite
from jaxtrain.records.workdir import METRICS
from jaxtrain.records.writer import APPEND, AppendedFile, ConfiguredWriter, LoggedRun
from jaxtrain.regular_file import MAX_TABLE_BYTES, read_bytes
from jaxtrain.system_errors import remedy
from jaxtrain.tasks.base import Values
from jaxtrain.tasks.metrics import scalars

# Maximum number of damaged lines listed in a warning.
NUM_NAMED = 5


class MetricsLine(TypedDict):
    """A line of `metrics.jsonl`; other fields are metrics, or details of an event."""

    kind: str
    step: int
    epoch: NotRequired[float]
    time: NotRequired[float]
    split: NotRequired[str]
    event: NotRequired[str]


class JsonLinesWriter(ConfiguredWriter):
    """Writer of records to `metrics.jsonl`; evaluations are reduced to scalars."""

    def __init__(self, run: LoggedRun):
        path = run.workdir / METRICS
        if path.exists():
            truncate_after(path, run.step)
        self._file = AppendedFile(path)

    def write(self, kind: str, step: int, values: Values) -> None:
        values = scalars(values) if kind == "eval" else values
        record = {"kind": kind, "step": step, "time": time.time(), **finite(values)}
        self._file.write((json.dumps(record, allow_nan=False) + "\n").encode())

    def close(self) -> None:
        self._file.close()


def parse_line(line: str | bytes, where: str) -> MetricsLine:
    """Parse a line of `metrics.jsonl`; raise UserError if it is invalid.

    Args:
      line: JSON object; bytes are UTF-8.
      where: Name of the file, for messages.
    """
    return typed.convert(parse_object(line, where), MetricsLine, where)


def truncate_after(path: Path, step: int) -> None:
    """Remove the lines of later steps, which the resumed run will write again.

    Damaged and truncated lines, which the run does not need, are moved to
    `metrics.damaged.jsonl` with a warning.

    Raises:
      UserError: The file cannot be read or written.
    """
    try:
        lines = read_bytes(path, MAX_TABLE_BYTES).split(b"\n")
        if not lines[-1]:
            lines.pop()
        lines_to_keep, damaged = list[bytes](), dict[int, bytes]()
        for number, line in enumerate(lines, start=1):
            try:
                if parse_line(line, path.name)["step"] <= step:
                    lines_to_keep.append(line)
            except UserError:
                damaged[number] = line
        if damaged:
            _move_damaged(path, damaged)
        atomic_file.write(path, b"".join(line + b"\n" for line in lines_to_keep))
    except OSError as error:
        reason = error.strerror or error
        raise UserError(
            f"{path} cannot be read or written ({reason}): {remedy(error.errno)}, or "
            "move the file away to continue without the earlier metrics"
        ) from None


def read_last(path: Path, name: str) -> dict[str, Any] | None:
    """Return the last line whose field `name` is a number, or None."""
    with contextlib.suppress(OSError):
        for text in reversed(read_bytes(path, MAX_TABLE_BYTES).splitlines()):
            with contextlib.suppress(UserError):
                line = _plain(parse_line(text, path.name))
                if isinstance(line.get(name), int | float):
                    return line
    return None


def read_evaluations(path: Path) -> list[dict[str, Any]]:
    """Return the evaluations of a run so far; unreadable lines are skipped.

    The added field `train_loss` is the mean loss of the training lines since the
    previous evaluation; it is missing if there are none.
    """
    evaluations, losses = list[dict[str, Any]](), list[float]()
    with contextlib.suppress(OSError):
        for text in read_bytes(path, MAX_TABLE_BYTES).splitlines():
            with contextlib.suppress(UserError):
                line = _plain(parse_line(text, path.name))
                if line["kind"] == "train" and "loss" in line:
                    losses.append(line["loss"])
                elif line["kind"] == "eval" and "split" in line:
                    mean = {"train_loss": sum(losses) / len(losses)} if losses else {}
                    evaluations.append({**line, **mean})
                    losses.clear()
    return evaluations


def _plain(line: MetricsLine) -> dict[str, Any]:
    plain = str | int | float
    return {name: value for name, value in line.items() if isinstance(value, plain)}


def _move_damaged(path: Path, damaged: dict[int, bytes]) -> None:
    aside = path.with_stem(f"{path.stem}.damaged")
    # Copy the lines before the file is truncated, so that no line is lost if the run is
    # killed.
    with open(links.open_in_place(aside, APPEND), "ab") as file:
        file.write(b"".join(line + b"\n" for line in damaged.values()))
    word = "lines" if len(damaged) > 1 else "line"
    print_stderr(
        f"warning: {path}: moved damaged or truncated {word} "
        f"{first_of(list(damaged), NUM_NAMED)} to {aside.name}; the run continues"
    )
