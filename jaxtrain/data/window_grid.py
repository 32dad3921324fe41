"""Grids of overlapping windows that cover a full image.

Evaluation and prediction use all windows (`jaxtrain.training.views.sliding_windows`).
Image statistics, activation ranges and data-dependent initial kernels are computed from
a sample of windows, because windows are the inputs of the model.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import numpy as np

# Minimum overlap of neighbouring windows, as a fraction of the window size; the default
# of MONAI.
OVERLAP = 0.25


@dataclass(frozen=True)
class WindowGrid:
    """Windows that cover an image; a single window if the image has the window's size.

    Attributes:
      image_size: Height and width of the image, in pixels.
      window: Height and width of a window, in pixels.
    """

    image_size: tuple[int, int]
    window: tuple[int, int]

    def __len__(self) -> int:
        return len(self.corners)

    @cached_property
    def corners(self) -> np.ndarray:
        """Top and left of each window, row by row, int32 (windows, 2)."""
        tops, lefts = (
            starts(*sides) for sides in zip(self.image_size, self.window, strict=True)
        )
        return np.array([(y, x) for y in tops for x in lefts], np.int32)

    def choose(self, num_images: int, most: int) -> tuple[np.ndarray, np.ndarray]:
        """Choose windows evenly: one per image, then a second per image, and so on.

        Consecutive windows differ in position, so that a batch covers all positions.

        Args:
          num_images: Number of images to choose from.
          most: Maximum number of windows.

        Returns:
          Image index and window index of each chosen window, int64 (n,) each.
        """
        num = min(most, num_images * len(self))
        turn, image = np.divmod(np.arange(num), num_images)
        return image, (image + turn) % len(self)

    def cut(self, images: Any, windows: Any) -> Any:
        """Crop one window of each image. Traceable.

        Args:
          images: Full images (B, H, W, C).
          windows: Index of the window in each image, (B,).
        """
        if len(self) == 1:
            return images
        height, width = self.window

        def one(image: jax.Array, corner: jax.Array) -> jax.Array:
            rows = jax.lax.dynamic_slice_in_dim(image, corner[0], height, 0)
            return jax.lax.dynamic_slice_in_dim(rows, corner[1], width, 1)

        return jax.vmap(one)(images, jax.numpy.asarray(self.corners)[windows])


def grid_of(window: tuple[int, int], sliding_size: int | None) -> WindowGrid:
    """Return the grid of windows for images of `data.sliding_size` pixels.

    Args:
      window: Height and width of a window, in pixels.
      sliding_size: Height and width of the images. None means a single window.
    """
    if sliding_size is None:
        return WindowGrid(window, window)
    return WindowGrid((sliding_size, sliding_size), window)


def starts(size: int, window: int) -> list[int]:
    """Return the first pixel of each window along an axis.

    Args:
      size: Size of the image along the axis, in pixels.
      window: Size of a window, in pixels; at most `size`.
    """
    stride = max(1, round(window * (1 - OVERLAP)))
    num = math.ceil((size - window) / stride) + 1
    return [min(i * stride, size - window) for i in range(num)]
