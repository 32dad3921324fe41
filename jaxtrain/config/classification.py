"""Options of the task classification, which the section `train` has as fields, too."""

from dataclasses import dataclass
from typing import Literal

from jaxtrain.config.base import Section
from jaxtrain.config.combinations import Incompatible, Needs, check, choice, option

COMBINATIONS = (
    Needs(
        option("train", "target_threshold"),
        choice("train", "loss", "binary_cross_entropy"),
        "set train.loss to binary_cross_entropy too",
    ),
    Incompatible(
        choice("train", "class_weights", "balanced"),
        choice("data", "sampling", "balanced"),
        "balanced sampling takes all classes as often already",
        "leave one of them out",
    ),
)


@dataclass(frozen=True, kw_only=True)
class ClassificationOptions(Section):
    """What classification can be told: `task_options`, or fields of `train`."""

    # Classification: probability moved from the true class to all classes evenly.
    label_smoothing: float = 0.0
    # Classification: what training lowers: the cross entropy of the softmax, or the
    # mean over the classes of that of "is it this one?"; evaluations tell the first.
    loss: Literal["cross_entropy", "binary_cross_entropy"] = "cross_entropy"
    # Of binary_cross_entropy: targets above it, as those of mixed and smoothed examples
    # may be, become 1 and the others 0; None: they stay as they are.
    target_threshold: float | None = None
    # Classification: weight of each class in the training loss, relative to the others,
    # or balanced: one over the number of its examples; None: all alike.
    class_weights: Literal["balanced"] | tuple[float, ...] | None = None

    def validate(self) -> None:
        self._fraction("label_smoothing", "target_threshold")
        weights = self.class_weights
        ok = not isinstance(weights, tuple) or (weights and min(weights) >= 0)
        self._check("class_weights", bool(ok), "balanced, or values of 0 or more")
        check(self, COMBINATIONS, "train")
