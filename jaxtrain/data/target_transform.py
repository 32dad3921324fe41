"""Cropping and resizing of targets on the host, the same as for their images.

A store whose targets have image coordinates, such as masks or boxes, implements
`transform_target(target, crop)` for one example. Augmentations in the step then
transform the targets further (`jaxtrain.data.augment.geometry`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxtrain.data.random_windows import Box
from jaxtrain.data.stores import Store

# Function (stored target, `ResizedCrop`) -> target. The stored target is None if the
# image is unreadable, and thus black.
TargetTransform = Callable[[Any, "ResizedCrop"], Any]


@dataclass(frozen=True)
class ResizedCrop:
    """A crop box of an image, and the size to which the crop is resized.

    Attributes:
      image_size: Height and width of the upright image, in pixels.
      box: Left, top, right and bottom in pixels; the box may exceed the image.
      size: Height and width of the resized crop.
      orientation: EXIF orientation of the stored image; 1 is upright.
    """

    image_size: tuple[int, int]
    box: Box
    size: tuple[int, int]
    orientation: int = 1

    def pixels(self, array: np.ndarray, border: int) -> np.ndarray:
        """Crop and resize an array (H, W, ...) like the image.

        Nearest-neighbour interpolation is used, because class indices cannot be mixed.

        Args:
          array: Array with the height and width of the image.
          border: Value of pixels outside the image.
        """
        assert array.shape[:2] == self.image_size
        left, top, right, bottom = self.box
        rows, is_row = _nearest(top, bottom, array.shape[0], self.size[0])
        columns, is_column = _nearest(left, right, array.shape[1], self.size[1])
        moved = array[rows][:, columns]
        if not (is_row.all() and is_column.all()):
            moved[~is_row] = border
            moved[:, ~is_column] = border
        return moved

    def points(self, points: np.ndarray) -> np.ndarray:
        """Map points from the image to the resized crop.

        Args:
          points: (x, y) in pixels, (..., 2); the corner of the first pixel is (0, 0).

        Returns:
          (x, y) in pixels of the resized crop, float32. Points outside `box` are not
          clipped.
        """
        left, top, right, bottom = self.box
        rows, columns = self.size
        scale = np.array([columns / (right - left), rows / (bottom - top)])
        moved = (np.asarray(points, np.float64) - (left, top)) * scale
        return moved.astype(np.float32)


def transform_of(store: Store) -> TargetTransform | None:
    """Return the transform of targets; None if targets have no image coordinates."""
    return getattr(store, "transform_target", None)


def _nearest(
    start: float, stop: float, stored: int, size: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the nearest input index of each output index, and a mask, (size,) each.

    The mask is False outside the input, where indices are clipped.

    Args:
      start: Start of the box along the axis, in input pixels.
      stop: End of the box along the axis, in input pixels.
      stored: Size of the input along the axis.
      size: Size of the output along the axis.
    """
    middles = start + (np.arange(size) + 0.5) * (stop - start) / size
    below = np.floor(middles).astype(np.int64)
    return below.clip(0, stored - 1), (below >= 0) & (below < stored)
