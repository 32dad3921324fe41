"""Random crops of images that differ in size: cut on the host, resized on the device.

The arrays of a batch must have one shape. Each crop window is copied to the upper left
corner of a canvas of fixed size, and a box gives the extent of the window. All other
pixels of the canvas are never read.
"""

import math
from collections.abc import Sequence

import numpy as np

from jaxtrain.data import images
from jaxtrain.data.files import ImageFile
from jaxtrain.data.fit import Fit
from jaxtrain.data.random_windows import Box

# Size of a canvas relative to the resized window. At 224 pixels, 98 % of the windows of
# 500x375 photographs fit. Larger photographs are decoded at 1/2, 1/4 or 1/8 of their
# size, and most of their windows fit.
SIDES = 2

# Pixels (H, W, C), or an encoded image file.
Image = np.ndarray | ImageFile


def canvas_shape(size: int, channels: int) -> tuple[int, int, int]:
    """Return (H, W, C) of the canvas for images that are resized to `size`."""
    return SIDES * size, SIDES * size, channels


def draw(image: Image, seed: Sequence[int], fit: Fit, size: int) -> Box:
    """Draw a random crop window of an image; see `Fit.draw`.

    Args:
      image: Pixels of the image, or its file.
      seed: Random seed, a sequence of non-negative integers.
      fit: Fit that draws the windows.
      size: Height and width to which the training step resizes the window.
    """
    is_file = isinstance(image, ImageFile)
    height, width = (image.height, image.width) if is_file else image.shape[:2]
    return fit.draw(height, width, seed, size)


def cut(image: Image, window: Box, size: int, fit: Fit, canvas: np.ndarray) -> Box:
    """Copy a crop window of an image to a canvas; return its box on the canvas.

    Args:
      image: Pixels of the image, or its file.
      window: Window in pixels of the image.
      size: Height and width to which the training step resizes the window.
      fit: Fit, whose interpolation resizes a window that is larger than the canvas.
      canvas: Output array, uint8 (K, K, C), written in place.
    """
    if isinstance(image, ImageFile):
        image, window = images.decode_box(image, size, canvas.shape[-1], window)
    left, top, right, bottom = window
    # Pixels that are partly inside the window are included: if a JPEG was decoded at
    # reduced size, its window may start within a pixel.
    first_column, first_row = math.floor(left), math.floor(top)
    pixels = image[first_row : math.ceil(bottom), first_column : math.ceil(right)]
    left, right = left - first_column, right - first_column
    top, bottom = top - first_row, bottom - first_row
    if max(pixels.shape[:2]) > len(canvas):
        box = left, top, right, bottom
        pixels = images.resize(pixels, size, fit.interpolation, box)
        # With this box, resizing in the training step is the identity.
        left, top, right, bottom = 0, 0, size, size
    height, width, channels = pixels.shape
    if channels != canvas.shape[-1]:
        pixels = images.to_channels(pixels, canvas.shape[-1])
    canvas[:height, :width] = pixels
    return left, top, right, bottom


def black(size: int, canvas: np.ndarray) -> Box:
    """Fill a window of `size` x `size` pixels with black; return its box."""
    canvas[:size, :size] = 0
    return 0, 0, size, size
