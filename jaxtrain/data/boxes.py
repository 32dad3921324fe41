"""Boxes of things in images, as files tell them.

Boxes are left, top, right and bottom in pixels: the corner of the first pixel is
(0, 0). Beside an image stand as many as `num_boxes` of the facts says, so that batches
have one shape; the class of those that are none is -1.
"""

from typing import NamedTuple

import numpy as np

# Facts of a set: the names of the classes of its boxes, the number of boxes that stand
# beside an image, and what other files call the classes.
NAMES, NUM_BOXES, CATEGORY_IDS = "box_names", "num_boxes", "category_ids"
# Class of what is no box, but fills up.
PADDING = -1
# Square pixels of the least box that stays where a part of it is cut off.
MIN_AREA = 4.0


class StoredBoxes(NamedTuple):
    """The boxes of one image, as a file tells them.

    Attributes:
      boxes: Left, top, right and bottom, (n, 4), in pixels or in parts of the image.
      classes: Number of the class of each, (n,).
      crowd: Whether each is around many things, which are not told apart, (n,).
      size: Height and width of the image; None if the file does not tell.
    """

    boxes: np.ndarray
    classes: np.ndarray
    crowd: np.ndarray
    size: tuple[int, int] | None
