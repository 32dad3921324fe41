"""Metric writers: their interface, the run, an appended file."""

import io
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

from jaxtrain import links
from jaxtrain.config import Config, LoggingConfig
from jaxtrain.console import tell
from jaxtrain.tasks.base import Task, Values

# Figures of the machine in lines of kind train (see `trainer/telemetry.py`).
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
          values: Numbers, texts, or nested lists of them. A number may be NaN.
        """

    def finish(self, summary: dict[str, Any]) -> None:
        """Take the contents of summary.json, once the run has reached its end."""

    def close(self) -> None:
        """Write what is pending and release resources; no record follows."""


class ConfiguredWriter(MetricWriter):
    """A writer of `jaxtrain.records.writers.WRITERS`, which the config enables.

    Attributes:
      may_fail: Field of the config whose writer may fail, with one warning; None: a
        failure ends the run.
    """

    may_fail: ClassVar[str | None] = None

    def __init__(self, run: LoggedRun):
        """Start the writer."""

    @classmethod
    def enabled(cls, config: LoggingConfig) -> bool:
        """Whether a run has this writer."""
        return True

    @classmethod
    def check(cls, config: LoggingConfig) -> None:
        """Check the writer, which is enabled, before the run starts.

        Raises:
          UserError: What it needs is not installed.
        """


class Appended:
    """A file to append to, unbuffered; what finds no room is tried again later."""

    def __init__(self, path: Path):
        self._path = path
        self._file = io.FileIO(links.open_in_place(path, APPEND), "ab")
        self._waiting = b""
        self._told = False

    def write(self, record: bytes) -> None:
        """Append a record, after those that wait."""
        self._waiting += record
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
