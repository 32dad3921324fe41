"""Options of the multilabel task."""

from dataclasses import dataclass
from typing import Literal

from jaxtrain.config.metadata import field
from jaxtrain.config.part import Part


@dataclass(frozen=True, kw_only=True)
class MultilabelConfig(Part):
    """Multi-label classification: any number of labels per image."""

    name: str = field("multilabel", init=False)
    loss: Literal["binary_cross_entropy", "asymmetric"] = field(
        "binary_cross_entropy",
        help="Training loss, averaged over the labels of an image: binary cross "
        "entropy, or the asymmetric loss (Ridnik et al. 2021, arXiv:2009.14119). "
        "Evaluations report the binary cross entropy.",
    )
    positive_weights: Literal["balanced"] | tuple[float, ...] | None = field(
        None,
        help="Weight of the positive term of each label's loss (pos_weight in "
        "PyTorch), or balanced: ratio of negative to positive training images of "
        "the label; None: 1.",
    )

    def validate(self) -> None:
        weights = self.positive_weights
        ok = not isinstance(weights, tuple) or (weights and min(weights) >= 0)
        self._check("positive_weights", bool(ok), "balanced, or values of 0 or more")
