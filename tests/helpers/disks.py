"""A real disk that is small, filled under a run."""

import contextlib
import os
from pathlib import Path

from jaxtrain.checkpoints.folder import COMMITTED
from tests.helpers.runs import read_lines
from tests.helpers.waiting import wait_until


def fill(disk: Path, left: int, after: int | None = None) -> None:
    """Leave only so many bytes free, once checkpoint `after` is committed."""
    if after is not None:
        wait_for_save(disk, after)
    path = disk / "ballast"
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(100_000))
    os.truncate(path, max(0, path.stat().st_size - left))


def wait_for_save(disk: Path, step: int) -> None:
    wait_until(lambda: COMMITTED in names(disk, str(step)))
    # An old one is about to be removed.
    wait_until(lambda: len(names(disk)) <= 3)


def names(disk: Path, step: str = ".") -> set[str]:
    return {p.name for p in (disk / "run" / "checkpoints" / step).iterdir()}


def whole(disk: Path) -> set[str]:
    """Name the steps that are whole; late files of a failed save may lie beside."""
    return {name for name in names(disk) if COMMITTED in names(disk, name)}


def failures(disk: Path) -> list[tuple[int, str]]:
    events = read_lines(disk / "run", "event")
    return [(e["step"], e["event"]) for e in events if "could not" in e["event"]]
