"""Options of the task detection: `task_options`."""

from dataclasses import dataclass
from itertools import pairwise

from jaxtrain.config.base import Section
from jaxtrain.config.metadata import field

# The paper's largest distance to a side of a box that a level learns, in its strides.
REACH = 8.0


@dataclass(frozen=True, kw_only=True)
class DetectionOptions(Section):
    """What detection can be told."""

    strides: tuple[int, ...] = field(
        (8, 16, 32),
        help="Pixels of the image between two places where boxes are looked for, of "
        "each level, rising; image height and width are multiples of the last.",
    )
    score_threshold: float = field(
        0.05,
        help="Least score of what is found.",
    )
    nms_threshold: float = field(
        0.6,
        help="Intersection over union from which on the better one of two boxes of a "
        "class is all that is found.",
    )
    keep: int = field(
        100,
        help="Boxes that are found in an image, at most.",
    )
    category_ids: tuple[int, ...] | None = field(
        None,
        help="What other files call the classes, as `category_id`; None: as the data "
        "say.",
    )

    def validate(self) -> None:
        rising = all(a < b for a, b in pairwise((0, *self.strides)))
        self._check("strides", bool(self.strides) and rising, "rising values above 0")
        self._positive("keep")
        for name in ("score_threshold", "nms_threshold"):
            self._check(name, 0 <= getattr(self, name) < 1, "0 or more, below 1")

    @property
    def bounds(self) -> tuple[tuple[float, float], ...]:
        """Least and largest distance to the farthest side of a box, of each level."""
        ends = (0.0, *(REACH * stride for stride in self.strides[:-1]), float("inf"))
        return tuple(pairwise(ends))
