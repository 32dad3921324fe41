"""Stored bounding boxes.

Boxes are left, top, right and bottom in pixels, with the corner of the first pixel at
(0, 0). Each image has `num_boxes` boxes, so that batches have a static shape; padding
boxes have class -1.
"""

from typing import NamedTuple

import numpy as np

# Keys of `Store.facts`: class names, number of boxes per image including padding, and
# category ids of the annotation file.
NAMES, NUM_BOXES, CATEGORY_IDS = "box_names", "num_boxes", "category_ids"
# Class of padding boxes.
PADDING = -1
# Minimum area of a cropped box in pixels; smaller boxes are dropped.
MIN_AREA = 4.0


class StoredBoxes(NamedTuple):
    """Bounding boxes of one image, as annotated.

    Attributes:
      boxes: Left, top, right and bottom, (n, 4), in pixels or relative to the image.
      classes: Class indices, (n,).
      crowd: Whether each box covers a crowd of objects, (n,).
      size: Height and width of the image, or None if the annotations lack them.
    """

    boxes: np.ndarray
    classes: np.ndarray
    crowd: np.ndarray
    size: tuple[int, int] | None
