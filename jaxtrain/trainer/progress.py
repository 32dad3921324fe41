"""Host-side state of a run, saved with each checkpoint."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(kw_only=True)
class Progress:
    """Host-side state of a run, saved as JSON with each checkpoint."""

    evaluated_step: int = 0
    eval_metrics: dict[str, float] | None = None
    # Values fitted in the last validation (`Task.choose`), such as thresholds.
    chosen: dict[str, list[float]] = field(default_factory=dict)
    # `step`, `epoch`, `metric` and `value` of the best evaluation.
    best: dict[str, Any] | None = None
    evals_without_improvement: int = 0
    stopped_early: bool = False
    # Host-side state of the callbacks: JSON values by callback name.
    callbacks: dict[str, Any] = field(default_factory=dict)
    # Total number of skipped steps and loss spikes, including unlogged ones.
    bad_steps_told: int = 0
    # `train_seconds` excludes setup, compilation and lost time (`clock.NOT_TRAINING`).
    train_seconds: float = 0.0
    step_seconds: float = 0.0
    # Seconds of the run by activity (`clock.ACTIVITIES`).
    seconds: dict[str, float] = field(default_factory=dict)
    # Metrics of the steps since the last log line.
    interval: dict[str, list[float]] = field(default_factory=dict)
