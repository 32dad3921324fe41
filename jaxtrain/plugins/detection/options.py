"""Options of the task detection: `task_options`."""

from dataclasses import dataclass
from itertools import pairwise

from jaxtrain.config.base import Section
from jaxtrain.errors import UserError

# The paper's largest distance to a side of a box that a level learns, in its strides.
REACH = 8.0


@dataclass(frozen=True, kw_only=True)
class DetectionOptions(Section):
    """What detection can be told."""

    # Pixels of the image between two places where boxes are looked for, of each level,
    # rising; image height and width are multiples of the last.
    strides: tuple[int, ...] = (8, 16, 32)
    # Pixels from a place to the farthest side of its box, up to which a level learns
    # it, of all levels but the last; None: 8 of its strides.
    reaches: tuple[float, ...] | None = None
    # Strides around the middle of a box within which places learn it.
    radius: float = 1.5
    # Focal loss (Lin et al. 2017): weight of what is there, and the exponent that makes
    # what is easy count less.
    focal_alpha: float = 0.25
    focal_gamma: float = 2.0
    # Weight of the loss of the boxes, beside that of the classes.
    box_weight: float = 1.0
    # Least score of what is found.
    score_threshold: float = 0.05
    # Intersection over union from which on the better one of two boxes of a class is
    # all that is found.
    nms_threshold: float = 0.6
    # Boxes that are found in an image, at most.
    keep: int = 100
    # Likeliest boxes that these are taken of.
    candidates: int = 300
    # Score from which on pictures and tables show a box.
    shown_score: float = 0.3
    # What other files call the classes, as `category_id`; None: as the data say.
    category_ids: tuple[int, ...] | None = None

    def validate(self) -> None:
        rising = all(a < b for a, b in pairwise((0, *self.strides)))
        self._check("strides", bool(self.strides) and rising, "rising values above 0")
        if self.reaches is not None:
            rising = all(a < b for a, b in pairwise((0.0, *self.reaches)))
            right = len(self.reaches) == len(self.strides) - 1
            few = "rising values above 0, one fewer than strides"
            self._check("reaches", rising and right, few)
        self._positive("radius", "keep", "candidates")
        self._not_negative("focal_gamma", "box_weight")
        self._check("focal_alpha", 0 <= self.focal_alpha <= 1, "0 to 1")
        for name in ("score_threshold", "nms_threshold", "shown_score"):
            self._check(name, 0 <= getattr(self, name) < 1, "0 or more, below 1")
        if self.candidates < self.keep:
            raise UserError(
                f"candidates = {self.candidates} is less than keep = {self.keep}, that "
                "are taken of them: raise it"
            )

    @property
    def bounds(self) -> tuple[tuple[float, float], ...]:
        """Least and largest distance to the farthest side of a box, of each level."""
        given = self.reaches or tuple(REACH * stride for stride in self.strides[:-1])
        ends = (0.0, *given, float("inf"))
        return tuple(pairwise(ends))
