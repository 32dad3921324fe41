"""The memory of the host of a run."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(kw_only=True)
class Progress:
    """Memory of the host; saved with each checkpoint, as JSON."""

    evaluated_step: int = 0
    eval_metrics: dict[str, float] | None = None
    # Choices of the last evaluation for the model (`Task.choose`).
    chosen: dict[str, list[float]] = field(default_factory=dict)
    # `step`, `epoch`, `metric` and `value` of the best evaluation.
    best: dict[str, Any] | None = None
    evals_without_improvement: int = 0
    stopped_early: bool = False
    # By the name of a callback, all that it is to remember.
    callbacks: dict[str, Any] = field(default_factory=dict)
    # Bad steps and spikes that have a line in metrics.jsonl, or would have.
    bad_steps_told: int = 0
    # Of the whole run, without start and compilation; and of its training steps alone.
    train_seconds: float = 0.0
    step_seconds: float = 0.0
    # By account (see `Clock`).
    seconds: dict[str, float] = field(default_factory=dict)
    # The metrics of the steps since the last line of metrics.
    interval: dict[str, list[float]] = field(default_factory=dict)
