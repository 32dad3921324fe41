"""`metrics.jsonl` when a run goes on: which lines stay in it, and its evaluations."""

import contextlib
import sys
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from jaxtrain import atomic_file
from jaxtrain.console import tell
from jaxtrain.errors import UserError
from jaxtrain.json_files import typed
from jaxtrain.json_files.read import parse_object
from jaxtrain.regular_file import MAX_TABLE_BYTES, read_bytes

# Numbers of damaged lines that a message names.
NUM_NAMED = 5


class MetricsLine(TypedDict):
    """A line; other fields are metrics, or details of an event."""

    kind: str
    step: int
    epoch: NotRequired[float]
    time: NotRequired[float]
    split: NotRequired[str]
    event: NotRequired[str]


def parse_line(line: str | bytes, where: str) -> MetricsLine:
    """Return what a line holds.

    Raises:
      UserError: It is damaged.
    """
    return typed.convert(parse_object(line, where), MetricsLine, where)


def keep_until(path: Path, step: int) -> None:
    """Remove the lines after a step, which the run is about to write again.

    Damaged lines, and one that a kill cut off, are moved to a file beside it and named
    in a warning: the run does not need them.

    Args:
      path: Path of the file.
      step: Step that the run goes on from.

    Raises:
      UserError: The file cannot be read or written.
    """
    try:
        lines = read_bytes(path, MAX_TABLE_BYTES).split(b"\n")
        if not lines[-1]:
            lines.pop()
        kept, damaged = _sort(lines, step, path.name)
        if damaged:
            _set_aside(path, damaged)
        atomic_file.write(path, b"".join(line + b"\n" for line in kept))
    except OSError as error:
        reason = error.strerror or error
        raise UserError(
            f"{path} cannot be read and written ({reason}): free some space, or move "
            "it away to go on without it"
        ) from None


def read_evaluations(path: Path) -> list[dict[str, Any]]:
    """Return the evaluations of a run so far, without what cannot be read.

    Each has as `train_loss` the mean loss of the training lines since the one before,
    if there are any.
    """
    found, losses = list[dict[str, Any]](), list[float]()
    with contextlib.suppress(OSError):
        for text in read_bytes(path, MAX_TABLE_BYTES).splitlines():
            with contextlib.suppress(UserError):
                line = _plain(parse_line(text, path.name))
                if line["kind"] == "train" and "loss" in line:
                    losses.append(line["loss"])
                elif line["kind"] == "eval" and "split" in line:
                    mean = {"train_loss": sum(losses) / len(losses)} if losses else {}
                    found.append({**line, **mean})
                    losses.clear()
    return found


def _plain(line: MetricsLine) -> dict[str, Any]:
    """Return a line without values that are neither text nor finite numbers."""
    largest = sys.float_info.max
    return {
        name: value
        for name, value in line.items()
        if isinstance(value, str)
        or (isinstance(value, int | float) and abs(value) <= largest)
    }


def _sort(
    lines: list[bytes], step: int, where: str
) -> tuple[list[bytes], dict[int, bytes]]:
    """Return the lines that stay, and the damaged ones by their number from 1."""
    kept, damaged = [], {}
    for number, line in enumerate(lines, start=1):
        try:
            if parse_line(line, where)["step"] <= step:
                kept.append(line)
        except UserError:
            damaged[number] = line
    return kept, damaged


def _set_aside(path: Path, damaged: dict[int, bytes]) -> None:
    aside = path.with_stem(f"{path.stem}.damaged")
    # First, so that a kill in between writes them twice, and loses none.
    with aside.open("ab") as file:
        file.write(b"".join(line + b"\n" for line in damaged.values()))
    numbers = ", ".join(map(str, list(damaged)[:NUM_NAMED]))
    more = f" and {len(damaged) - NUM_NAMED} more" if len(damaged) > NUM_NAMED else ""
    word = "lines" if len(damaged) > 1 else "line"
    tell(
        f"warning: {path}: damaged or cut off: {word} {numbers}{more}, moved to "
        f"{aside.name}; the run goes on without"
    )
