"""Boxes that a model finds: of the image as it is, not as the model sees it."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from jaxtrain.inference.tables import Columns, Row
from jaxtrain.tasks.outputs import SHOWN_SCORE, Finder
from jaxtrain.weights.description import Description

# Of the table of predictions.
COLUMNS: Columns = {"num_boxes": int, "labels": str}
# Between the labels of an image.
SEPARATOR = ";"


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
    found: Mapping[str, np.ndarray], i: int, about: Description, size: tuple[int, int]
) -> FoundBoxes:
    """Return the boxes of one image, in its own pixels.

    Args:
      found: What `Finder.of` returned for several images.
      i: Which of them.
      about: Model that says how the image got the size that the model takes.
      size: Height and width of the image.
    """
    there = found["classes"][i] >= 0
    boxes = found["boxes"][i][there].astype(np.float64)
    rows, columns, _ = about.image_shape
    height, width = size
    left, top, right, bottom = 0.0, 0.0, float(width), float(height)
    if rows == columns:
        left, top, right, bottom = about.fit.centre_box(height, width, rows)
    scale = np.array([(right - left) / columns, (bottom - top) / rows])
    moved = boxes.reshape(-1, 2, 2) * scale + (left, top)
    cut = moved.clip(0, (width, height)).reshape(-1, 4)
    return FoundBoxes(cut, found["scores"][i][there], found["classes"][i][there])


def row(found: Mapping[str, np.ndarray], i: int, finder: Finder) -> Row:
    """Return what a table has of the boxes of an image: how many, and their labels."""
    shown = found["scores"][i] >= SHOWN_SCORE
    labels = [finder.names[kind] for kind in found["classes"][i][shown]]
    return {"num_boxes": len(labels), "labels": SEPARATOR.join(labels)}
