"""Detections, and their conversion to pixels of the original image."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxtrain.tasks.decoder import OutputFacts

# Minimum score of the detections in drawn images and in tables.
SHOWN_SCORE = 0.3


class Finder(NamedTuple):
    """Functions that compute boxes from a detector's outputs, with their metadata.

    Boxes are left, top, right and bottom in pixels of the model's input image.

    Attributes:
      names: Names of the classes.
      category_ids: COCO category id of each class.
      of: Traceable function that returns the detections after NMS: `boxes` (B, K, 4),
        `scores` (B, K), best first, and `classes` (B, K), -1 for padding.
      candidates: Traceable function that returns the boxes (B, N, 4) and class scores
        (B, N, C) before NMS.
      limits: Keyword arguments of `fcos.detect`: `num`, `keep`, `score_threshold` and
        `nms_threshold`.
    """

    names: tuple[str, ...]
    category_ids: tuple[int, ...]
    of: Callable[[Any], dict[str, jax.Array]]
    candidates: Callable[[Any], tuple[jax.Array, jax.Array]]
    limits: Mapping[str, Any]


class FoundBoxes(NamedTuple):
    """Detections of one image, in descending order of score.

    Attributes:
      boxes: Left, top, right and bottom in pixels of the image, float64 (n, 4).
      scores: Score of each detection, 0 to 1, (n,).
      classes: Class index of each detection, (n,).
    """

    boxes: np.ndarray
    scores: np.ndarray
    classes: np.ndarray

    def above(self, score: float) -> "FoundBoxes":
        """Return the detections with a score of at least `score`."""
        good = self.scores >= score
        return FoundBoxes(*(x[good] for x in self))


def boxes_of(
    found: Mapping[str, np.ndarray],
    i: int,
    facts: OutputFacts,
    size: tuple[int, int] | None,
) -> FoundBoxes:
    """Return the boxes of one image, in pixels of the original image.

    Args:
      found: Results of `Finder.of` for several images.
      i: Index of the image.
      facts: Metadata of the run, including the preprocessing of images.
      size: Height and width of the original image; None returns boxes in pixels of the
        model's input.
    """
    there = found["classes"][i] >= 0
    points = found["boxes"][i][there].astype(np.float64).reshape(-1, 2, 2)
    if size is None:
        size = facts.image_shape[:2]
    else:
        points = facts.in_file(points, size)
    cut = points.clip(0, size[::-1]).reshape(-1, 4)
    return FoundBoxes(cut, found["scores"][i][there], found["classes"][i][there])
