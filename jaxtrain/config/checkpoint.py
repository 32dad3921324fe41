"""The section `checkpoint`: how often one is saved, and which are kept."""

from dataclasses import dataclass

from jaxtrain.config.base import Section
from jaxtrain.config.metadata import field


@dataclass(frozen=True, kw_only=True)
class CheckpointConfig(Section):
    """Checkpoints: how often they are saved, and how long they are kept."""

    # Epochs between checkpoints; default: 1. One is always saved at the end.
    every_epochs: float | None = field(None, common=True, one_of="checkpoints")
    # Steps between checkpoints.
    every_steps: int | None = field(None, one_of="checkpoints")
    # Newest checkpoints kept.
    keep: int = 3
    # Best checkpoints kept, by best_metric on the validation split: the best of them is
    # the model that is tested and used; 0: the last weights are.
    keep_best: int = 1
    # Validation metric that makes a checkpoint the best; None: the task's own, such as
    # accuracy.
    best_metric: str | None = None
    # Seconds from the signal to stop until the run is saved, else it ends as it is:
    # fewer than the system grants (Kubernetes 30), but at least twice what a step
    # takes; None: as long as it takes.
    grace_seconds: float | None = 25.0

    def validate(self) -> None:
        self._positive("every_epochs", "every_steps", "keep")
        self._seconds("grace_seconds")
        self._not_negative("keep_best")
