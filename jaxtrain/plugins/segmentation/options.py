"""Options of the task segmentation."""

from dataclasses import dataclass
from typing import Any, Literal

from jaxtrain.config.base import Section
from jaxtrain.data.pixel_classes import MAX_VALUE
from jaxtrain.errors import UserError

# Options that belong to some losses -> these, and what they are if they are left out.
OF_LOSSES: dict[str, tuple[tuple[str, ...], Any]] = {
    "gamma": (("focal",), 2.0),
    "label_smoothing": (("cross_entropy", "cross_entropy_dice"), 0.0),
    "class_weights": (("cross_entropy", "focal", "cross_entropy_dice"), None),
}


@dataclass(frozen=True, kw_only=True)
class SegmentationOptions(Section):
    """What segmentation can be told: `task_options`."""

    # What training lowers, of the pixels of an image; evaluations tell the cross
    # entropy.
    loss: Literal["cross_entropy", "focal", "dice", "cross_entropy_dice", "lovasz"] = (
        "cross_entropy"
    )
    # Class that counts neither in the loss nor in the metrics; 255, which pixels from
    # outside of an image have, never does.
    ignore_value: int = MAX_VALUE
    # Weight of the pixels of each class in the cross entropy, or in focal; or balanced:
    # one over the pixels that the masks of the training split have of it; None: 1.
    class_weights: Literal["balanced"] | tuple[float, ...] | None = None
    # Of the cross entropy: probability moved from the true class to all of them evenly;
    # None: 0.
    label_smoothing: float | None = None
    # Of focal: exponent that makes pixels that are easy count less; None: 2.
    gamma: float | None = None
    # Pixels by which a boundary may be off in boundary_f_score; None: 0.8 % of the
    # diagonal of the image, rounded up.
    boundary_tolerance: int | None = None

    def validate(self) -> None:
        for name, (losses, _) in OF_LOSSES.items():
            value = getattr(self, name)
            if value is not None and self.loss not in losses:
                raise UserError(
                    f"{name} = {value!r} has no effect on loss = {self.loss!r}: leave "
                    f"it out, or set loss to {' or '.join(losses)}"
                )
        in_range = 0 <= self.ignore_value <= MAX_VALUE
        self._check("ignore_value", in_range, f"a number from 0 to {MAX_VALUE}")
        self._fraction("label_smoothing")
        gamma = self.gamma
        self._check(
            "gamma", gamma is None or gamma == 0 or gamma >= 1, "0, or 1 or more"
        )
        weights = self.class_weights
        ok = not isinstance(weights, tuple) or (
            min(weights, default=-1) >= 0 and max(weights) > 0
        )
        told = "balanced, or values of 0 or more, and one above 0"
        self._check("class_weights", ok, told)
        self._not_negative("boundary_tolerance")

    def of_loss(self, name: str) -> Any:
        """Return an option that belongs to some losses, or its default."""
        value = getattr(self, name)
        return OF_LOSSES[name][1] if value is None else value
