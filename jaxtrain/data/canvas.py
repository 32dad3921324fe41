"""Random windows of images that differ in size: cut on the host, resized by the step.

A batch must be one array. So each window lies in the upper left corner of a canvas of
the same size for all, and a box tells where in it; what the canvas holds beyond is
never read.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from jaxtrain.data import images, memory
from jaxtrain.data.files import ImageFile
from jaxtrain.data.images import Fit
from jaxtrain.data.random_windows import Box

# Of a batch: left, top, right and bottom of each window in its canvas, float32
# (batch, 4). The left and the top are less than 1.
BOX = "box"
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


def flatten(batch: dict[str, Any]) -> dict[str, Any]:
    """Return a batch with its windows one after the other, uint8 (bytes,).

    So a data worker hands it on: memory that processes share is cleared and mapped page
    by page, and most of a canvas is empty.
    """
    boxes, canvases = batch[BOX], batch["image"]
    channels = canvases.shape[-1]
    num_pixels = np.ceil(boxes[:, 2:]).astype(int).prod(axis=1).sum()
    # As large as the canvases, so that their memory will do; the rest stays untouched.
    flat = memory.empty((canvases.size,))[: num_pixels * channels]
    for part, image in zip(_parts(flat, boxes, channels), canvases, strict=True):
        height, width, _ = part.shape
        part[:] = image[:height, :width]
    return {**batch, "image": flat}


def unflatten(batch: dict[str, Any], shape: tuple[int, int, int]) -> dict[str, Any]:
    """Put the windows of `flatten` back on canvases of a shape."""
    flat, boxes = batch["image"], batch[BOX]
    canvases = memory.empty((len(boxes), *shape))
    for part, image in zip(_parts(flat, boxes, shape[-1]), canvases, strict=True):
        height, width, _ = part.shape
        image[:height, :width] = part
    return {**batch, "image": canvases}


def _parts(flat: np.ndarray, boxes: np.ndarray, channels: int) -> Iterator[np.ndarray]:
    """Yield the part of each window in a flat array, (h, w, channels) each."""
    start = 0
    for width, height in np.ceil(boxes[:, 2:]).astype(int).tolist():
        stop = start + height * width * channels
        yield flat[start:stop].reshape(height, width, channels)
        start = stop
