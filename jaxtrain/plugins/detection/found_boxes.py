"""Boxes that a model finds: of the image as it is, not as the model sees it."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxtrain.tasks.decoder import OutputFacts

# Least score of the boxes that pictures and tables show.
SHOWN_SCORE = 0.3


class Finder(NamedTuple):
    """Boxes of the outputs of a model that finds things in images.

    Boxes are left, top, right and bottom in pixels of the image that the model sees.

    Attributes:
      names: Names of the classes.
      category_ids: What files as COCO's call each class.
      of: Function of outputs, traced, that returns `boxes` (B, K, 4), `scores` (B, K),
        the best first, and `classes` (B, K), -1 for padding.
      candidates: Function of outputs, traced, that returns what these are taken of:
        boxes (B, N, 4) and the scores of all classes (B, N, C).
      limits: How they are: `num` candidates at most, of which `keep` are found at most,
        of scores from `score_threshold` on; of two of a class with an intersection over
        the union above `nms_threshold` the better one.
    """

    names: tuple[str, ...]
    category_ids: tuple[int, ...]
    of: Callable[[Any], dict[str, jax.Array]]
    candidates: Callable[[Any], tuple[jax.Array, jax.Array]]
    limits: Mapping[str, Any]


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
    found: Mapping[str, np.ndarray],
    i: int,
    facts: OutputFacts,
    size: tuple[int, int] | None,
) -> FoundBoxes:
    """Return the boxes of one image, in pixels of its file.

    Args:
      found: What `Finder.of` returned for several images.
      i: Which of them.
      facts: Facts of the run: how the image got the size that the model takes.
      size: Height and width of the image in its file; None: boxes stay in pixels of the
        image that the model sees.
    """
    there = found["classes"][i] >= 0
    points = found["boxes"][i][there].astype(np.float64).reshape(-1, 2, 2)
    if size is None:
        size = facts.image_shape[:2]
    else:
        points = facts.in_file(points, size)
    cut = points.clip(0, size[::-1]).reshape(-1, 4)
    return FoundBoxes(cut, found["scores"][i][there], found["classes"][i][there])
