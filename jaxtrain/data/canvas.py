"""Random windows of images that differ in size: cut on the host, resized by the step.

A batch must be one array. So each window lies in the upper left corner of a canvas of
the same size for all, and a box tells where in it; what the canvas holds beyond is
never read.
"""

import math
from collections.abc import Sequence

import numpy as np

from jaxtrain.data import images
from jaxtrain.data.files import ImageFile
from jaxtrain.data.images import Box, Fit

# Of a batch: left, top, right and bottom of each window in its canvas, float32
# (batch, 4). The left and the top are less than 1.
BOX = "box"
# The side of a canvas over that of the image that the step makes of it. Of photographs
# of 500x375 pixels 98 % of the windows fit at 224, and of larger ones most that are
# decoded at 1/2, 1/4 or 1/8 of their size.
SIDES = 2


def canvas_shape(image_shape: tuple[int, int, int]) -> tuple[int, int, int]:
    """Return (H, W, C) of the canvas for images that are to have a shape."""
    height, width, channels = image_shape
    return SIDES * height, SIDES * width, channels


def cut_file(
    file: ImageFile, size: int, seed: Sequence[int], fit: Fit, canvas: np.ndarray
) -> Box:
    """Put a random window of a file into a canvas (K, K, C); return where it lies.

    Args:
      file: of the image.
      size: that the step will resize it to.
      seed: numbers, 0 or more, that draw the window.
      fit: the ranges of the windows, and the filter.
      canvas: takes the window.

    Raises:
      UnreadableError: the file is damaged.
    """
    assert fit.window is not None
    box = images.random_window(file.height, file.width, seed, fit.window)
    image, box = images.decode_box(file, size, canvas.shape[-1], box)
    return _cut(image, box, size, fit, canvas)


def cut_array(
    image: np.ndarray, size: int, seed: Sequence[int], fit: Fit, canvas: np.ndarray
) -> Box:
    """Do to pixels (H, W, C) what `cut_file` does to a file."""
    assert fit.window is not None
    height, width, _ = image.shape
    box = images.random_window(height, width, seed, fit.window)
    return _cut(image, box, size, fit, canvas)


def black(size: int, canvas: np.ndarray) -> Box:
    """Put a black image into a canvas."""
    canvas[:size, :size] = 0
    return 0, 0, size, size


def _cut(image: np.ndarray, box: Box, size: int, fit: Fit, canvas: np.ndarray) -> Box:
    """Copy a box of an image into a canvas; a larger one is resized to its size."""
    left, top, right, bottom = box
    # Nothing from beyond the window, but pixels that are partly in it: where a JPEG is
    # decoded at a part of its size, a window need not begin at a whole pixel.
    first_column, first_row = math.floor(left), math.floor(top)
    image = image[first_row : math.ceil(bottom), first_column : math.ceil(right)]
    left, right = left - first_column, right - first_column
    top, bottom = top - first_row, bottom - first_row
    if max(image.shape[:2]) > len(canvas):
        box = left, top, right, bottom
        image = images.resize(image, size, fit.interpolation, box)
        # To this box the step's own resizing does nothing.
        left, top, right, bottom = 0, 0, size, size
    height, width, _ = image.shape
    canvas[:height, :width] = images.to_channels(image, canvas.shape[-1])
    return left, top, right, bottom
