"""Options of the detection task: `task_options`."""

from dataclasses import dataclass
from itertools import pairwise

from jaxtrain.config.base import Section

# Largest distance to a side that a level regresses, in its strides (FCOS, section 3.2).
REACH = 8.0


@dataclass(frozen=True, kw_only=True)
class DetectionOptions(Section):
    """Options of the detection task."""

    # Strides of the levels in pixels of the image, increasing; image height and width
    # must be multiples of the last.
    strides: tuple[int, ...] = (8, 16, 32)
    # Minimum score of a detection.
    score_threshold: float = 0.05
    # IoU above which NMS removes the lower-scoring of two boxes of a class.
    nms_threshold: float = 0.6
    # Maximum number of detections per image.
    keep: int = 100
    # COCO category id of each class; None: taken from the data.
    category_ids: tuple[int, ...] | None = None

    def validate(self) -> None:
        rising = all(a < b for a, b in pairwise((0, *self.strides)))
        self._check("strides", bool(self.strides) and rising, "rising values above 0")
        self._positive("keep")
        for name in ("score_threshold", "nms_threshold"):
            self._check(name, 0 <= getattr(self, name) < 1, "0 or more, below 1")

    @property
    def bounds(self) -> tuple[tuple[float, float], ...]:
        """Minimum and maximum distance to the farthest side of a box, per level."""
        ends = (0.0, *(REACH * stride for stride in self.strides[:-1]), float("inf"))
        return tuple(pairwise(ends))
