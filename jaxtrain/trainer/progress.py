"""What the host remembers of a run."""

from dataclasses import dataclass, field
from typing import Any

from jaxtrain.tasks.metrics import Goal, scalars


@dataclass(kw_only=True)
class Progress:
    """What the host remembers of a run; saved with each checkpoint, as JSON."""

    evaluated_step: int = 0
    eval_metrics: dict[str, float] | None = None
    # What the last evaluation has chosen for the model (`Task.choose`).
    chosen: dict[str, list[float]] = field(default_factory=dict)
    best: dict[str, Any] | None = None
    early_stop_best: float | None = None
    early_stop_metric: str | None = None
    evals_without_improvement: int = 0
    stopped_early: bool = False
    # What the plateau schedule remembers (`jaxtrain.trainer.plateau`).
    plateau: dict[str, Any] = field(default_factory=dict)
    # Bad steps and spikes that have a line in metrics.jsonl, or would have.
    bad_steps_told: int = 0
    # Of the whole run, without start and compilation; and of its training steps alone.
    train_seconds: float = 0.0
    step_seconds: float = 0.0
    # By account (see `Clock`).
    seconds: dict[str, float] = field(default_factory=dict)
    # The metrics of the steps since the last line of metrics.
    interval: dict[str, list[float]] = field(default_factory=dict)

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
        ranked: bool = True,
    ) -> bool:
        """Take an evaluation; set `stopped_early`; return whether it is the best.

        Of equal evaluations the last is the best, which has had more training.

        Args:
          epoch: The same in epochs.
          best: Goal that ranks checkpoints.
          watched: Goal of early stopping.
          patience: Evaluations without improvement that stop the run; None never stops
            it.
          ranked: Whether it counts; it may be of a model that is not pruned yet.
        """
        self.evaluated_step, self.eval_metrics = step, scalars(metrics)
        if not ranked:
            return False
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
