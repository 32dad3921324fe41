"""Options of the task segmentation."""

from dataclasses import dataclass
from typing import Literal

from jaxtrain.config.base import Section
from jaxtrain.data.pixel_classes import MAX_VALUE
from jaxtrain.errors import UserError

# Losses that support class_weights.
WEIGHTED = ("cross_entropy", "focal", "cross_entropy_dice")


@dataclass(frozen=True, kw_only=True)
class SegmentationOptions(Section):
    """Options of the segmentation task."""

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

    def validate(self) -> None:
        if self.class_weights is not None and self.loss not in WEIGHTED:
            raise UserError(
                f"class_weights = {self.class_weights!r} has no effect on loss = "
                f"{self.loss!r}: leave it out, or set loss to {' or '.join(WEIGHTED)}"
            )
        in_range = 0 <= self.ignore_value <= MAX_VALUE
        self._check("ignore_value", in_range, f"a number from 0 to {MAX_VALUE}")
        weights = self.class_weights
        ok = not isinstance(weights, tuple) or (
            min(weights, default=-1) >= 0 and max(weights) > 0
        )
        told = "balanced, or values of 0 or more, and one above 0"
        self._check("class_weights", ok, told)
