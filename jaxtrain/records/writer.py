"""What metric writers are made from: their interface, the run, an appended file."""

import contextlib
import io
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from jaxtrain import links
from jaxtrain.config import Config
from jaxtrain.console import tell
from jaxtrain.tasks.base import Task, Values

# Figures of the machine in lines of kind train (see `run/telemetry.py`).
SYSTEM = (
    "mfu",
    "data_wait",
    "gpu_utilization",
    "gpu_memory_bytes",
    "gpu_peak_bytes",
    "gpu_power_watts",
    "gpu_temperature",
    "host_cpu_cores",
    "host_memory_bytes",
)
# Flags of `os.open` of a file that is appended to.
APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT


@dataclass(frozen=True, kw_only=True)
class LoggedRun:
    """The run that a writer is made for.

    Attributes:
      workdir: Folder of the run.
      config: The resolved config.
      step: Completed steps at the start. Records of later steps may come a second time,
        as the run resumes or goes back to a checkpoint.
      total_steps: Steps of the whole run.
      epoch: Converts a number of steps to epochs.
      task: Names the metrics to show, and draws the pictures of an evaluation.
      evaluated_after: Returns the number of examples that evaluations after a step
        have, in units of a batch of training.
    """

    workdir: Path
    config: Config
    step: int
    total_steps: int
    epoch: Callable[[int], float]
    task: Task
    evaluated_after: Callable[[int], float] = lambda step: 0.0


@runtime_checkable
class MetricWriter(Protocol):
    """Takes the records of a run, in process 0. Methods do nothing by default."""

    def write(self, kind: str, step: int, values: Values) -> None:
        """Take a record.

        Args:
          kind: One of train, eval and event.
          step: Number of completed steps.
          values: Numbers, texts, or nested lists of them. A number may be NaN.
        """

    def finish(self, summary: dict[str, Any]) -> None:
        """Take the contents of summary.json, once the run has reached its end."""

    def close(self) -> None:
        """Write what is pending and release resources; no record follows."""


class Appended:
    """A file to append to, unbuffered; what finds no room is tried again later.

    A file that is removed meanwhile begins anew.
    """

    def __init__(self, path: Path):
        self._path = path
        self._folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        self._file = self._open()
        self._waiting = b""
        self._told = self._told_removed = False

    def write(self, record: bytes) -> None:
        """Append a record, after those that wait."""
        self._waiting += record
        self._begin_anew_if_removed()
        try:
            while self._waiting:
                self._waiting = self._waiting[self._file.write(self._waiting) :]
        except OSError as error:
            if not self._told:
                text = f"{self._path}: {error.strerror}; its lines wait in memory"
                tell(f"warning: {text}")
            self._told = True

    def close(self) -> None:
        """Try once more to write what waits, tell what is lost, and close the file."""
        self.write(b"")
        if self._waiting:
            text = f"{self._path}: the last {len(self._waiting)} bytes are lost"
            tell(f"warning: {text}")
        self._file.close()
        os.close(self._folder)

    def _open(self) -> io.FileIO:
        opened = links.open_in_place(self._path, APPEND, folder=self._folder)
        return open(opened, "ab", buffering=0)

    def _begin_anew_if_removed(self) -> None:
        """Open the file again, unless its folder is gone, too."""
        if os.fstat(self._file.fileno()).st_nlink:
            return
        if not self._told_removed:
            tell(f"warning: {self._path} was removed: its lines so far are lost")
        self._told_removed = True
        with contextlib.suppress(OSError):
            again = self._open()
            self._file.close()
            self._file = again
            self._told_removed = False


def scalars_by_split(kind: str, values: Values) -> dict[str, float]:
    """Return the numbers of a record, named by their split, such as `test/loss`.

    Those of the machine are named `system/host_cpu_cores`.
    """
    scope = values.get("split", kind)
    return {
        f"{'system' if name in SYSTEM else scope}/{name}": value
        for name, value in values.items()
        if isinstance(value, int | float)
    }
