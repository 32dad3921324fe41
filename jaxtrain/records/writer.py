"""Interface of metric writers, and append-only files."""

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

# Names of telemetry values in records of kind train (see `trainer/telemetry.py`).
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
    """Properties of a run for its metric writers.

    Attributes:
      workdir: Directory of the run.
      config: Resolved config.
      step: Completed steps at the start. A resumed run may repeat records of later
        steps.
      total_steps: Number of steps of the run.
      epoch: Function that converts steps to epochs.
      task: Task of the run; selects the metrics to show, and draws figures.
      evaluated_after: Function from a step to the (fractional) number of batches in all
        later evaluations.
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
    """Interface of metric writers, used in process 0. Methods do nothing by default."""

    def write(self, kind: str, step: int, values: Values) -> None:
        """Write a record.

        Args:
          kind: "train", "eval" or "event".
          step: Completed steps of the run.
          values: Values by name: numbers (possibly NaN), strings, and nested lists of
            numbers and strings.
        """

    def finish(self, summary: dict[str, Any]) -> None:
        """Write the summary of a finished run, the contents of summary.json."""

    def close(self) -> None:
        """Flush pending records and release resources."""


class ConfiguredWriter(MetricWriter):
    """Base class of the writers in `jaxtrain.records.writers.WRITERS`.

    Attributes:
      may_fail: Config field to name in the warning about a failure. If None, a failure
        of the writer ends the run.
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
    """An unbuffered append-only file; the next write retries failed writes."""

    def __init__(self, path: Path):
        self._path = path
        self._file = io.FileIO(links.open_in_place(path, APPEND), "ab")
        self._waiting = b""
        self._warned = False

    def write(self, record: bytes) -> None:
        """Append a record, after the records of failed writes."""
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
        """Retry failed writes, warn about lost records, and close the file."""
        self.write(b"")
        if self._waiting:
            text = f"{self._path}: the last {len(self._waiting)} bytes are lost"
            print_stderr(f"warning: {text}")
        self._file.close()


def scalars_by_split(kind: str, values: Values) -> dict[str, float]:
    """Return the numbers of a record by prefixed name, such as `test/loss`.

    The prefix is the split, `system` for telemetry, or the kind if there is no split.
    """
    scope = values.get("split", kind)
    return {
        f"{'system' if name in SYSTEM else scope}/{name}": value
        for name, value in values.items()
        if isinstance(value, int | float)
    }
