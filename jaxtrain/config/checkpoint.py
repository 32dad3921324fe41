"""The section `checkpoint`: frequency and retention of checkpoints."""

from dataclasses import dataclass

from jaxtrain.config.base import Section
from jaxtrain.config.metadata import field


@dataclass(frozen=True, kw_only=True)
class CheckpointConfig(Section):
    """Frequency and retention of checkpoints."""

    every_epochs: float | None = field(
        None,
        help="Epochs between checkpoints; default: 1. The final state is always saved.",
        common=True,
        one_of="checkpoints",
    )
    every_steps: int | None = field(
        None,
        help="Steps between checkpoints.",
        one_of="checkpoints",
    )
    keep: int = field(
        3,
        help="Number of newest checkpoints to retain.",
    )
    keep_best: int = field(
        1,
        help="Number of best checkpoints to retain, by best_metric on the validation "
        "split; the best checkpoint is tested and used for inference. 0: use the last "
        "checkpoint.",
    )
    best_metric: str | None = field(
        None,
        help="Validation metric that selects the best checkpoint; None: the main "
        "metric of the task, such as accuracy.",
        fixed_in_trials="all trials are ranked by the same metric",
    )
    grace_seconds: float | None = field(
        25.0,
        help="Seconds that the run may take to save a checkpoint after SIGTERM or "
        "SIGINT, before it exits without saving. Set a value below the grace "
        "period of the system (Kubernetes: 30), but at least twice the time of a step; "
        "None: no limit.",
    )

    def validate(self) -> None:
        self._positive("every_epochs", "every_steps", "keep")
        self._seconds("grace_seconds")
        self._not_negative("keep_best")
