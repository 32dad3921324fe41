"""Options of the classification task."""

from dataclasses import dataclass
from typing import Literal

from jaxtrain.config.combinations import Incompatible, Needs, check, choice, option
from jaxtrain.config.metadata import field
from jaxtrain.config.part import Part

# Losses that depend only on the probability of the true class.
OF_TRUE_CLASS = ("focal", "poly", "symmetric", "bootstrap")

COMBINATIONS = (
    Needs(
        option("task", "target_threshold"),
        choice("task", "loss", "binary_cross_entropy"),
        "set task.loss to binary_cross_entropy",
    ),
    *(
        Incompatible(
            option("task", "label_smoothing"),
            choice("task", "loss", loss),
            "the loss depends only on the probability of the true class",
            "leave task.label_smoothing out",
        )
        for loss in OF_TRUE_CLASS
    ),
    Incompatible(
        option("task", "logit_adjustment"),
        choice("task", "loss", "binary_cross_entropy"),
        "logit adjustment adds the log priors of the classes to softmax logits",
        "choose another task.loss",
    ),
    Incompatible(
        option("task", "logit_adjustment"),
        option("task", "class_weights"),
        "both options compensate for class imbalance",
        "leave one of the two options out",
    ),
    *(
        Incompatible(
            feature,
            choice("data", "sampling", "balanced"),
            "balanced sampling already compensates for class imbalance",
            "leave one of the two options out",
        )
        for feature in (
            option("task", "logit_adjustment"),
            choice("task", "class_weights", "effective_number"),
            choice("task", "class_weights", "balanced"),
        )
    ),
)


@dataclass(frozen=True, kw_only=True)
class ClassificationConfig(Part):
    """Classification: one class per image."""

    name: str = field("classification", init=False)
    label_smoothing: float = field(
        0.0,
        help="Label smoothing: the probability that is spread evenly over all classes.",
        common=True,
        other_names="smoothing label_smoothing",
    )
    loss: Literal[
        "cross_entropy",
        "binary_cross_entropy",
        "focal",
        "poly",
        "symmetric",
        "bootstrap",
    ] = field(
        "cross_entropy",
        help="Training loss: cross_entropy, of the softmax; binary_cross_entropy, "
        "averaged over the classes; focal (Lin et al. 2017); poly, PolyLoss (Leng et "
        "al. 2022); for noisy labels, symmetric, the symmetric cross entropy (Wang et "
        "al. 2019), or bootstrap, bootstrapping (Reed et al. 2015). Evaluations report "
        "the cross entropy.",
    )
    logit_adjustment: float | None = field(
        None,
        help="Logit adjustment (Menon et al. 2021): training adds the log priors of "
        "the classes, times this factor, such as 1, to the logits; None: no "
        "adjustment.",
    )
    target_threshold: float | None = field(
        None,
        help="For loss binary_cross_entropy: threshold for rounding the soft targets "
        "of mixed or smoothed examples to 0 or 1; None: no rounding.",
    )
    class_weights: (
        Literal["balanced", "effective_number"] | tuple[float, ...] | None
    ) = field(
        None,
        help="Relative weights of the classes in the training loss, or "
        "balanced: 1 / n, with n the number of examples of a class; or "
        "effective_number: 1 / (1 - 0.999 ** n) (Cui et al. 2019); None: equal "
        "weights.",
    )

    def validate(self) -> None:
        self._fraction("label_smoothing", "target_threshold")
        self._positive("logit_adjustment")
        weights = self.class_weights
        ok = not isinstance(weights, tuple) or (weights and min(weights) >= 0)
        self._check("class_weights", bool(ok), "balanced, or values of 0 or more")
        check(self, COMBINATIONS, "task")
