"""Transforms of targets that follow an image which the host cuts and resizes.

A store whose targets have a place in the image, such as masks or boxes, says how they
move: `place(target, placed)`, of one example. Augmentations in the step move them on
(`jaxtrain.data.augment.geometry`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxtrain.data.random_windows import Box
from jaxtrain.data.stores import Store

# (target of an example, or None, where its image is taken) -> target. None stands for
# an example that cannot be read, whose image is black.
Place = Callable[[Any, "Placed"], Any]


@dataclass(frozen=True)
class Placed:
    """A box of an image, resized.

    Attributes:
      image_size: Height and width of the upright image, in pixels.
      box: Left, top, right and bottom in the image; what is beyond it is border.
      size: Height and width of the result.
      orientation: Orientation of the stored image, as EXIF numbers it; 1 is upright.
    """

    image_size: tuple[int, int]
    box: Box
    size: tuple[int, int]
    orientation: int = 1

    def pixels(self, array: np.ndarray, border: int) -> np.ndarray:
        """Return an array (H, W, ...) of the image moved as the image is.

        Each pixel of the result is one of the array, the one below its middle: numbers
        of classes have no means.

        Args:
          border: Value of what lies beyond the image.
        """
        assert array.shape[:2] == self.image_size
        left, top, right, bottom = self.box
        rows, is_row = _below(top, bottom, array.shape[0], self.size[0])
        columns, is_column = _below(left, right, array.shape[1], self.size[1])
        moved = array[rows][:, columns]
        if not (is_row.all() and is_column.all()):
            moved[~is_row] = border
            moved[:, ~is_column] = border
        return moved

    def points(self, points: np.ndarray) -> np.ndarray:
        """Map points of the image to the result.

        Args:
          points: (x, y) in pixels, (..., 2): the corner of the first pixel is (0, 0).

        Returns:
          (x, y) in pixels of the result, float32, outside of it where they are outside
          of the box.
        """
        left, top, right, bottom = self.box
        rows, columns = self.size
        scale = np.array([columns / (right - left), rows / (bottom - top)])
        moved = (np.asarray(points, np.float64) - (left, top)) * scale
        return moved.astype(np.float32)


def place_of(store: Store) -> Place | None:
    """Return the function by which targets follow their images; None: they stay."""
    return getattr(store, "place", None)


def _below(
    start: float, stop: float, stored: int, size: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the stored row below the middle of each row, and whether there is one."""
    middles = start + (np.arange(size) + 0.5) * (stop - start) / size
    below = np.floor(middles).astype(np.int64)
    return below.clip(0, stored - 1), (below >= 0) & (below < stored)
