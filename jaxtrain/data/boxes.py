"""Stored bounding boxes.

Boxes are left, top, right and bottom in pixels, with the corner of the first pixel at
(0, 0). Each image has `num_boxes` boxes, so that batches have a static shape; padding
boxes have class -1.
"""

from typing import NamedTuple

import numpy as np

# Keys of `Store.facts`: names of the classes; number of boxes per image, including
# padding; category ids in the annotation file.
NAMES, NUM_BOXES, CATEGORY_IDS = "box_names", "num_boxes", "category_ids"
# Class of padding boxes.
PADDING = -1
# Minimum area in pixels of a box that a crop has clipped; smaller boxes are removed.
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
