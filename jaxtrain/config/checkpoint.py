"""The section `checkpoint`: how often one is saved, and which are kept."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jaxtrain.config.base import Section
from jaxtrain.config.metadata import field


@dataclass(frozen=True, kw_only=True)
class CheckpointConfig(Section):
    """Checkpoints: how often they are saved, and how long they are kept."""

    every_epochs: float | None = field(
        None,
        help="Epochs between checkpoints; default: 1. One is always saved at the end.",
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
        help="Newest checkpoints kept.",
    )
    keep_best: int = field(
        1,
        help="Best checkpoints kept, by best_metric on the validation split: the best "
        "of them is the model that is tested and used; 0: the last weights are.",
    )
    best_metric: str | None = field(
        None,
        help="Validation metric that makes a checkpoint the best; None: the task's "
        "own, such as accuracy.",
        fixed_in_trials="it ranks all trials",
    )
    grace_seconds: float | None = field(
        25.0,
        help="Seconds from the signal to stop until the run is saved, else it ends as "
        "it is: fewer than the system grants (Kubernetes 30), but at least twice what "
        "a step takes; None: as long as it takes.",
    )

    @classmethod
    def removed(cls) -> Mapping[str, Any]:
        return {
            "every_minutes": None,
            "keep_every_steps": None,
        }

    def validate(self) -> None:
        self._positive("every_epochs", "every_steps", "keep")
        self._seconds("grace_seconds")
        self._not_negative("keep_best")
