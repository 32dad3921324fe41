"""What the host remembers of a run, and its clock."""

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from jaxtrain.tasks.metrics import Goal, scalars


@dataclass(kw_only=True)
class Progress:
    """What the host remembers of a run; saved with each checkpoint, as JSON."""

    evaluated_step: int = 0
    eval_metrics: dict[str, float] | None = None
    best: dict[str, Any] | None = None
    early_stop_best: float | None = None
    early_stop_metric: str | None = None
    evals_without_improvement: int = 0
    stopped_early: bool = False
    # Steps whose data were left out: the data are so far ahead of the steps.
    data_offset: int = 0
    # Bad steps and spikes that have a line in metrics.jsonl, or would have.
    bad_steps_told: int = 0
    # Of the whole run, without compilation; and of its training steps alone.
    train_seconds: float = 0.0
    step_seconds: float = 0.0
    # The metrics of the steps since the last line of metrics.
    interval: dict[str, list[float]] = field(default_factory=dict)

    def data_position(self, step: int) -> int:
        """Return which batch of the data order comes after `step` steps."""
        return step + self.data_offset

    def reconsider(self, patience: int | None) -> None:
        """Let a run that stopped early go on if it has more patience now."""
        waited = self.evals_without_improvement
        if patience is None or waited < patience:
            self.stopped_early = False

    def record(
        self,
        step: int,
        epoch: float,
        metrics: dict[str, Any],
        *,
        best: Goal,
        watched: Goal,
        patience: int | None,
    ) -> bool:
        """Take an evaluation; set `stopped_early`; return whether it is the best.

        Of equal evaluations the last is the best, which has had more training.

        Args:
          epoch: The same in epochs.
          best: Goal that ranks checkpoints.
          watched: Goal of early stopping.
          patience: Evaluations without improvement that stop the run; None never stops
            it.
        """
        self.evaluated_step, self.eval_metrics = step, scalars(metrics)
        if patience is not None:
            if self.early_stop_metric not in (None, watched.metric):
                # It was changed: its best is still to come.
                self.early_stop_best, self.evals_without_improvement = None, 0
            self.early_stop_metric = watched.metric
            if watched.improves(metrics[watched.metric], self.early_stop_best):
                self.early_stop_best = metrics[watched.metric]
                self.evals_without_improvement = 0
            else:
                self.evals_without_improvement += 1
            self.stopped_early = self.evals_without_improvement >= patience
        name, value = best.metric, metrics[best.metric]
        known = self.best is not None and self.best["metric"] == name
        old = self.best["value"] if self.best and known else None
        tied = old is not None and value == old
        if not (tied or best.improves(value, old)):
            return False
        self.best = {"step": step, "epoch": epoch, "metric": name, "value": value}
        return True


class Clock:
    """Adds to the seconds that `progress` had when the run was resumed.

    Args:
      compile_seconds: spent so far; they do not count.
      now: the time, in seconds.
    """

    def __init__(
        self,
        progress: Progress,
        compile_seconds: Callable[[], float],
        now: Callable[[], float] = time.perf_counter,
    ):
        self._progress, self._compile_seconds = progress, compile_seconds
        self._train, self._step = progress.train_seconds, progress.step_seconds
        self._now = now
        self._began = now() - compile_seconds()
        self._paused = 0.0
        self._last = 0.0

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Do not count what is inside as training steps."""
        start = self._elapsed()
        yield
        self._paused += self._elapsed() - start

    def speed(self, examples: int, until: float) -> float:
        """Return examples a second of training steps, from the last `until` to this.

        Args:
          examples: of these steps.
          until: when they were done, in `step_seconds`.
        """
        seconds, self._last = until - self._last, until
        return examples / max(seconds, 1e-9)

    def step_seconds(self) -> float:
        """Return the seconds of training steps so far, in this process."""
        return self._elapsed() - self._paused

    def update(self) -> None:
        """Bring the seconds of `progress` up to date."""
        self._progress.train_seconds = self._train + self._elapsed()
        self._progress.step_seconds = self._step + self.step_seconds()

    def _elapsed(self) -> float:
        return self._now() - self._began - self._compile_seconds()
