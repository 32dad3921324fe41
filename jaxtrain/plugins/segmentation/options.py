"""Options of the task segmentation."""

from dataclasses import dataclass
from typing import Literal

from jaxtrain.config.base import report
from jaxtrain.config.metadata import field
from jaxtrain.config.part import Part
from jaxtrain.data.pixel_classes import MAX_VALUE

# Losses that support class_weights.
WEIGHTED = ("cross_entropy", "focal", "cross_entropy_dice")


@dataclass(frozen=True, kw_only=True)
class SegmentationConfig(Part):
    """Semantic segmentation: a class for each pixel."""

    name: str = field("segmentation", init=False)
    loss: Literal["cross_entropy", "focal", "dice", "cross_entropy_dice", "lovasz"] = (
        field(
            "cross_entropy",
            help="Training loss over the pixels of an image; evaluations report the "
            "cross entropy.",
        )
    )
    ignore_value: int = field(
        MAX_VALUE,
        help="Class that the loss and the metrics ignore; 255, the value of pixels "
        "outside of an image, is always ignored.",
    )
    class_weights: Literal["balanced"] | tuple[float, ...] | None = field(
        None,
        help="Weight of each class in the cross entropy or focal loss; balanced: the "
        "inverse pixel frequencies of the training split; None: 1.",
    )

    def validate(self) -> None:
        if self.class_weights is not None and self.loss not in WEIGHTED:
            report(
                f"task.class_weights = {self.class_weights!r} has no effect with "
                f"task.loss = {self.loss!r}: leave task.class_weights out, or set "
                f"task.loss to {' or '.join(WEIGHTED)}",
                "class_weights",
            )
        in_range = 0 <= self.ignore_value <= MAX_VALUE
        self._check("ignore_value", in_range, f"a number from 0 to {MAX_VALUE}")
        weights = self.class_weights
        ok = not isinstance(weights, tuple) or (
            min(weights, default=-1) >= 0 and max(weights) > 0
        )
        expected = "balanced, or values of 0 or more, at least one above 0"
        self._check("class_weights", ok, expected)
