"""Windows of the model's size that cover a whole image: their places, and their pixels.

Evaluations and predictions see all of them (`jaxtrain.training.views.sliding_windows`).
Statistics, ranges and first kernels are computed from some of the same windows, so that
they are those of what the model is shown.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import numpy as np

# Part of a window that the next one shares, at least, as in MONAI.
OVERLAP = 0.25


@dataclass(frozen=True)
class WindowGrid:
    """The windows of a whole image; the one of an image that is as large as a window.

    Attributes:
      whole: Height and width of the image, in pixels.
      window: Height and width of a window.
    """

    whole: tuple[int, int]
    window: tuple[int, int]

    def __len__(self) -> int:
        return len(self.corners)

    @cached_property
    def corners(self) -> np.ndarray:
        """Top and left of each window, row by row, int32 (windows, 2)."""
        tops, lefts = (
            starts(*sides) for sides in zip(self.whole, self.window, strict=True)
        )
        return np.array([(y, x) for y in tops for x in lefts], np.int32)

    def choose(self, num_images: int, most: int) -> tuple[np.ndarray, np.ndarray]:
        """Choose windows: one of each image, then another one of each, and so on.

        Neighbours are of different places, so that a batch of them has all.

        Returns:
          Numbers of the images, and of their windows, int64 (n,) each.
        """
        num = min(most, num_images * len(self))
        turn, image = np.divmod(np.arange(num), num_images)
        return image, (image + turn) % len(self)

    def cut(self, images: Any, windows: Any) -> Any:
        """Return a window of each image. May be traced.

        Args:
          images: Whole images (B, H, W, C).
          windows: Number of the window of each, (B,).
        """
        if len(self) == 1:
            return images
        height, width = self.window

        def one(image: jax.Array, corner: jax.Array) -> jax.Array:
            rows = jax.lax.dynamic_slice_in_dim(image, corner[0], height, 0)
            return jax.lax.dynamic_slice_in_dim(rows, corner[1], width, 1)

        return jax.vmap(one)(images, jax.numpy.asarray(self.corners)[windows])


def grid_of(window: tuple[int, int], sliding_size: int | None) -> WindowGrid:
    """Return the windows of images of `data.sliding_size`; None: of one window."""
    if sliding_size is None:
        return WindowGrid(window, window)
    return WindowGrid((sliding_size, sliding_size), window)


def starts(whole: int, part: int) -> list[int]:
    """Return the first pixels of the windows along a side.

    Args:
      part: Pixels of the side of a window, `whole` at most.
    """
    stride = max(1, round(part * (1 - OVERLAP)))
    num = math.ceil((whole - part) / stride) + 1
    return [min(i * stride, whole - part) for i in range(num)]
