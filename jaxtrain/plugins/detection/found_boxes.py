"""Boxes that a model finds: of the image as it is, not as the model sees it."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from jaxtrain.tasks.decoder import OutputFacts


class FoundBoxes(NamedTuple):
    """The boxes of one image, the best first.

    Attributes:
      boxes: Left, top, right and bottom in pixels of the image, float64 (n, 4).
      scores: Score of each, 0 to 1, (n,).
      classes: Number of the class of each, (n,).
    """

    boxes: np.ndarray
    scores: np.ndarray
    classes: np.ndarray

    def above(self, score: float) -> "FoundBoxes":
        """Return those of a score or more."""
        good = self.scores >= score
        return FoundBoxes(*(x[good] for x in self))


def boxes_of(
    found: Mapping[str, np.ndarray], i: int, facts: OutputFacts, size: tuple[int, int]
) -> FoundBoxes:
    """Return the boxes of one image, in its own pixels.

    Args:
      found: What `Finder.of` returned for several images.
      i: Which of them.
      facts: Facts of the run: how the image got the size that the model takes.
      size: Height and width of the image.
    """
    there = found["classes"][i] >= 0
    boxes = found["boxes"][i][there].astype(np.float64)
    rows, columns, _ = facts.image_shape
    height, width = size
    left, top, right, bottom = 0.0, 0.0, float(width), float(height)
    if rows == columns and facts.fit is not None:
        left, top, right, bottom = facts.fit.centre_box(height, width, rows)
    scale = np.array([(right - left) / columns, (bottom - top) / rows])
    moved = boxes.reshape(-1, 2, 2) * scale + (left, top)
    cut = moved.clip(0, (width, height)).reshape(-1, 4)
    return FoundBoxes(cut, found["scores"][i][there], found["classes"][i][there])
