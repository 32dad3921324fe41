"""Interface of metric writers, the logged run, and append-only files."""

import io
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

from jaxtrain import links
from jaxtrain.config import Config, LoggingConfig
from jaxtrain.console import print_stderr
from jaxtrain.tasks.base import Task, Values

# Telemetry in records of kind train (see `trainer/telemetry.py`).
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
# Flags of `os.open` for appending.
APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT


@dataclass(frozen=True, kw_only=True)
class LoggedRun:
    """The run that a writer logs.

    Attributes:
      workdir: Directory of the run.
      config: Resolved config.
      step: Completed steps at the start. Records of later steps may be repeated, as the
        run resumes from a checkpoint.
      total_steps: Number of steps of the run.
      epoch: Function from a number of steps to epochs.
      task: Task, which names the metrics to show and draws figures of an evaluation.
      evaluated_after: Function from a step to the number of examples of all later
        evaluations, divided by the batch size.
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
    """Consumer of a run's records, in process 0. Methods do nothing by default."""

    def write(self, kind: str, step: int, values: Values) -> None:
        """Write a record.

        Args:
          kind: One of train, eval and event.
          step: Completed steps of the run.
          values: Numbers, strings, or nested lists of numbers and strings, by name.
            Numbers may be NaN.
        """

    def finish(self, summary: dict[str, Any]) -> None:
        """Write the final summary, as in summary.json, of a finished run."""

    def close(self) -> None:
        """Flush pending records and release resources."""


class ConfiguredWriter(MetricWriter):
    """A writer of `jaxtrain.records.writers.WRITERS`, enabled by the config.

    Attributes:
      may_fail: Config field that a warning names if the writer fails. With None, a
        failure ends the run.
    """

    may_fail: ClassVar[str | None] = None

    def __init__(self, run: LoggedRun):
        """Start the writer for a run."""

    @classmethod
    def enabled(cls, config: LoggingConfig) -> bool:
        """Whether the config enables this writer."""
        return True

    @classmethod
    def check(cls, config: LoggingConfig) -> None:
        """Check the requirements of an enabled writer before the run starts.

        Raises:
          UserError: A library is missing.
        """


class AppendedFile:
    """An unbuffered append-only file; failed writes are retried later."""

    def __init__(self, path: Path):
        self._path = path
        self._file = io.FileIO(links.open_in_place(path, APPEND), "ab")
        self._waiting = b""
        self._warned = False

    def write(self, record: bytes) -> None:
        """Append a record, after pending records."""
        self._waiting += record
        try:
            while self._waiting:
                self._waiting = self._waiting[self._file.write(self._waiting) :]
        except OSError as error:
            if not self._warned:
                text = f"{self._path}: {error.strerror}; lines are buffered in memory"
                print_stderr(f"warning: {text}")
            self._warned = True

    def close(self) -> None:
        """Retry pending writes, warn about lost records, and close the file."""
        self.write(b"")
        if self._waiting:
            text = f"{self._path}: the last {len(self._waiting)} bytes are lost"
            print_stderr(f"warning: {text}")
        self._file.close()


def scalars_by_split(kind: str, values: Values) -> dict[str, float]:
    """Return the numbers of a record with their split as prefix, such as `test/loss`.

    Telemetry has the prefix `system`, such as `system/host_cpu_cores`.
    """
    scope = values.get("split", kind)
    return {
        f"{'system' if name in SYSTEM else scope}/{name}": value
        for name, value in values.items()
        if isinstance(value, int | float)
    }
