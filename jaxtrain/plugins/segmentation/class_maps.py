"""Predicted classes of pixels: their shares, and masks of the size of an image."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from PIL import Image

from jaxtrain.data import files
from jaxtrain.data.fit import Fit
from jaxtrain.data.pixel_classes import IGNORED
from jaxtrain.data.random_windows import Box
from jaxtrain.data.read_files import FileData
from jaxtrain.inference.pixels import MAX_PIXELS
from jaxtrain.tasks.pictures import PALETTE, overlay

SHARE = "share_"


def shares(logits: jax.Array) -> jax.Array:
    """Return the part of the pixels that each class has, (B, C), of (B, H, W, C)."""
    found = jax.nn.one_hot(logits.argmax(-1), logits.shape[-1], dtype=jnp.float32)
    return found.mean((1, 2))


def mask_of_image(logits: np.ndarray, fit: Fit, size: tuple[int, int]) -> np.ndarray:
    """Return the class of each pixel of an image in its own size, uint8 (H, W).

    Logits are resized by linear means, and the largest counts. What the model did not
    see, because it was cut off, is `IGNORED`.

    Args:
      logits: Logits for the image as the model saw it, (rows, columns, classes).
      fit: How the image got this size.
      size: Height and width of the image.
    """
    rows, columns = logits.shape[:2]
    height, width = size
    box: Box = 0, 0, width, height
    if size != (rows, columns):
        box = fit.centre_box(height, width, rows)
    left, top, right, bottom = box
    first_row, last_row, above, below = _seen(top, bottom, height, rows)
    first, last, before, behind = _seen(left, right, width, columns)
    shape = last - first, last_row - first_row
    best = np.full(shape[::-1], -np.inf, np.float32)
    found = np.zeros(shape[::-1], np.uint8)
    # One class after the other: all of a photograph may be a gigabyte.
    for number in range(logits.shape[-1]):
        picture = Image.fromarray(np.ascontiguousarray(logits[..., number], np.float32))
        part = (before, above, behind, below)
        resized = np.asarray(picture.resize(shape, Image.Resampling.BILINEAR, part))
        better = resized > best
        best[better], found[better] = resized[better], number
    mask = np.full(size, IGNORED, np.uint8)
    mask[first_row:last_row, first:last] = found
    return mask


def draw_masks(
    data: FileData, logits: np.ndarray, fit: Fit
) -> tuple[Image.Image, Image.Image]:
    """Return the mask of an image file, with a palette, and the image under it.

    Args:
      data: File of the image.
      logits: Logits for the image, (rows, columns, classes).
      fit: How the image got the size of the model.

    Raises:
      UnreadableError: the file is no image.
    """
    file = files.open_file(data, MAX_PIXELS, fit.white_level)
    mask = mask_of_image(logits, fit, (file.height, file.width))
    seen = np.where(mask == IGNORED, 0, mask)
    return in_colours(mask), Image.fromarray(overlay(file.decode(3), seen, PALETTE[1:]))


def in_colours(mask: np.ndarray) -> Image.Image:
    """Return a mask, uint8 (H, W), as a picture with a palette: its values stay."""
    picture = Image.fromarray(mask)
    picture.putpalette(PALETTE.ravel().tolist())
    return picture


def _seen(
    start: float, stop: float, size: int, num: int
) -> tuple[int, int, float, float]:
    """Return the pixels of a side of an image whose middles lie in a box.

    Args:
      start: Where the box begins, in pixels of the image.
      stop: Where it ends.
      size: Pixels of the image.
      num: Pixels that the model saw of the box.

    Returns:
      The first pixel, one after the last, and where they begin and end among those that
      the model saw.
    """
    first = max(0, math.ceil(start - 0.5))
    last = min(size, max(first + 1, math.ceil(stop - 0.5)))
    scale = num / (stop - start)
    begin, end = ((place - start) * scale for place in (first, last))
    return first, last, max(0.0, begin), min(float(num), end)
