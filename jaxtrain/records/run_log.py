"""Run log: sends records to the metric writers and the screen, and prints tables."""

import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from jaxtrain.console import printable
from jaxtrain.records import writers
from jaxtrain.records.metrics_file import read_evaluations
from jaxtrain.records.screen import Screen
from jaxtrain.records.workdir import METRICS
from jaxtrain.records.writer import LoggedRun

# Step metric with values 0 and 1 -> name of its sum in a log line.
COUNTED = {"skipped": "skipped_steps", "spike": "loss_spikes"}


class RunLog:
    """Sends records to the metric writers and the screen, in process 0 only.

    Args:
      run: Run to log.
      wall_seconds: Function that returns the duration of the run in seconds, including
        the time before a resume.
    """

    def __init__(self, run: LoggedRun, wall_seconds: Callable[[], float]):
        self._epoch, self._metrics = run.epoch, run.workdir / METRICS
        self._wall_seconds = wall_seconds
        first = jax.process_index() == 0
        self._writers = writers.build(run) if first else []
        silent = Console(quiet=True, force_terminal=False, force_jupyter=False)
        self.screen = Screen(
            run.step,
            run.total_steps,
            run.epoch,
            ("loss", *run.task.shown),
            earlier_seconds=wall_seconds(),
            evaluated_after=run.evaluated_after,
            console=None if first else silent,
        )

    def write(self, kind: str, step: int, **values: Any) -> None:
        """Write and show a record of `kind` "train", "eval" or "event"."""
        self.record(kind, step, **values)
        self.screen.write(kind, step, values)

    def record(self, kind: str, step: int, **values: Any) -> None:
        """Send a record to the metric writers, but not to the screen."""
        wall = round(self._wall_seconds(), 3)
        values = {"epoch": self._epoch(step), "wall_seconds": wall, **values}
        for writer in self._writers:
            writer.write(kind, step, values)

    def finish(self, summary: dict[str, Any]) -> None:
        """Send the summary of the run to all writers."""
        for writer in self._writers:
            writer.finish(summary)

    def show_earlier(self) -> None:
        """Show the last evaluations before a resume, if there is a progress bar."""
        self.screen.earlier(lambda: read_evaluations(self._metrics))

    def close(self) -> None:
        for writer in (*self._writers, self.screen):
            writer.close()


class Interval:
    """Step metrics since the last log line, on the device until they are read."""

    def __init__(self, values: dict[str, list[float]] | None = None):
        self._values: dict[str, list[float]] = dict(values or {})
        # Number of steps passed to `add`; the steps of restored `values` are excluded.
        self.num_new = 0
        self._on_device: list[dict[str, jax.Array]] = []

    def add(self, metrics: dict[str, jax.Array]) -> None:
        """Add metrics of consecutive steps, arrays of shape (steps,)."""
        self._on_device.append(metrics)
        self.num_new += metrics["loss"].shape[0]

    def values(self) -> dict[str, list[float]]:
        """Return one value per step of each metric; blocks until all are computed."""
        for metrics in jax.device_get(self._on_device):
            for name, values in metrics.items():
                self._values.setdefault(name, []).extend(map(float, values))
        self._on_device = []
        return self._values

    def losses(self) -> tuple[float, int]:
        """Return the sum and the number of finite losses, without skipped steps."""
        values = self.values()
        losses = np.asarray(values.get("loss", []), np.float64)
        taken = np.asarray(values.get("skipped", []), np.float64) == 0
        losses = losses[taken & np.isfinite(losses)]
        return float(losses.sum()), losses.size

    def summary(self) -> dict[str, float]:
        """Return the metrics of a log line: means over the steps that were not skipped.

        `skipped_steps` and `loss_spikes` are counts. Learning rate, loss scale and
        sparsity are the values of the last step.
        """
        values = {name: np.asarray(v) for name, v in self.values().items()}
        taken = values["skipped"] == 0
        result = {}
        for name, array in values.items():
            if name in ("learning_rate", "loss_scale", "sparsity"):
                result[name] = float(array[-1])
            elif name in COUNTED:
                result[COUNTED[name]] = int(array.sum())
            elif name not in ("bad_steps", "loss_limit"):
                result[name] = float(array[taken].mean()) if taken.any() else math.nan
        return result


def show_table(title: str, rows: dict[str, Any]) -> None:
    """Print a table of names and values, in process 0 only."""
    if jax.process_index() == 0:
        table = Table(title=title, title_justify="left", show_header=False)
        for name, value in rows.items():
            # Class names may look like Rich markup; `Text` does not interpret it.
            table.add_row(Text(printable(name)), Text(printable(str(value))))
        Console().print(table)
