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
from jaxtrain.data.fit import Fit
from jaxtrain.data.random_windows import Box

# The side of a canvas over that of the image that the step makes of it. Of photographs
# of 500x375 pixels 98 % of the windows fit at 224, and of larger ones most that are
# decoded at 1/2, 1/4 or 1/8 of their size.
SIDES = 2

# Pixels (H, W, C), or a file of them.
Image = np.ndarray | ImageFile


def canvas_shape(size: int, channels: int) -> tuple[int, int, int]:
    """Return (H, W, C) of the canvas for images that are to have a size."""
    return SIDES * size, SIDES * size, channels


def draw(image: Image, seed: Sequence[int], fit: Fit, size: int) -> Box:
    """Draw the random window of an image, which will be resized to a size."""
    is_file = isinstance(image, ImageFile)
    height, width = (image.height, image.width) if is_file else image.shape[:2]
    return fit.draw(height, width, seed, size)


def cut(image: Image, window: Box, size: int, fit: Fit, canvas: np.ndarray) -> Box:
    """Put a window of an image into a canvas (K, K, C); return where it lies there.

    Args:
      image: Pixels of the image, or its file.
      window: Window in whole pixels.
      size: Height and width that the step will resize it to.
      fit: Fit of what is too large for the canvas, and therefore resized here.
    """
    if isinstance(image, ImageFile):
        image, window = images.decode_box(image, size, canvas.shape[-1], window)
    left, top, right, bottom = window
    # Nothing from beyond the window, but pixels that are partly in it: where a JPEG is
    # decoded at a part of its size, a window need not begin at a whole pixel.
    first_column, first_row = math.floor(left), math.floor(top)
    pixels = image[first_row : math.ceil(bottom), first_column : math.ceil(right)]
    left, right = left - first_column, right - first_column
    top, bottom = top - first_row, bottom - first_row
    if max(pixels.shape[:2]) > len(canvas):
        box = left, top, right, bottom
        pixels = images.resize(pixels, size, fit.interpolation, box)
        # With this box the step's own resizing changes nothing.
        left, top, right, bottom = 0, 0, size, size
    height, width, channels = pixels.shape
    if channels != canvas.shape[-1]:
        pixels = images.to_channels(pixels, canvas.shape[-1])
    canvas[:height, :width] = pixels
    return left, top, right, bottom


def black(size: int, canvas: np.ndarray) -> Box:
    """Put a black image into a canvas, of the size that the step makes of it."""
    canvas[:size, :size] = 0
    return 0, 0, size, size
