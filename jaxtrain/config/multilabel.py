"""Options of the task multilabel: `task_options`."""

from dataclasses import dataclass, fields
from typing import Literal

from jaxtrain.config.base import Section
from jaxtrain.errors import UserError


@dataclass(frozen=True, kw_only=True)
class MultilabelOptions(Section):
    """What multilabel can be told."""

    # What training lowers, the mean over the labels of an image: the binary cross
    # entropy, or the asymmetric loss (Ridnik et al. 2021, arXiv:2009.14119);
    # evaluations tell the first.
    loss: Literal["binary_cross_entropy", "asymmetric"] = "binary_cross_entropy"
    # Asymmetric: exponent that makes labels that are there and easy count less.
    gamma_positive: float = 0.0
    # Asymmetric: the same for labels that are not there.
    gamma_negative: float = 4.0
    # Asymmetric: probability up to which a label that is not there counts nothing.
    margin: float = 0.05
    # Factor on the loss of each label where it is there, or balanced: training images
    # without it over those with it; None: 1.
    positive_weights: Literal["balanced"] | tuple[float, ...] | None = None

    def validate(self) -> None:
        for name in ("gamma_positive", "gamma_negative"):
            value = getattr(self, name)
            self._check(name, value == 0 or value >= 1, "0, or 1 or more")
        self._check("margin", 0 <= self.margin < 1, "0 or more, below 1")
        weights = self.positive_weights
        ok = not isinstance(weights, tuple) or (weights and min(weights) >= 0)
        self._check("positive_weights", bool(ok), "balanced, or values of 0 or more")
        if self.loss == "asymmetric":
            return
        defaults = {f.name: f.default for f in fields(self)}
        for name in ("gamma_positive", "gamma_negative", "margin"):
            if getattr(self, name) != defaults[name]:
                raise UserError(
                    f"{name} = {getattr(self, name)} has no effect with loss = "
                    f"{self.loss!r}: set loss to asymmetric, or leave it out"
                )
