"""Conversion of logits to masks at the original image size, and to class fractions."""

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
    """Fraction of pixels predicted as each class, float32 (B, C).

    Args:
      logits: Logits, (B, H, W, C).
    """
    found = jax.nn.one_hot(logits.argmax(-1), logits.shape[-1], dtype=jnp.float32)
    return found.mean((1, 2))


def mask_of_image(logits: np.ndarray, fit: Fit, size: tuple[int, int]) -> np.ndarray:
    """Mask of predicted classes at the original image size, uint8 (H, W).

    Pixels outside the model's crop are `IGNORED`; at other pixels, the mask is the
    argmax of the bilinearly resized logits.

    Args:
      logits: Logits at the model's input size, (rows, columns, classes).
      fit: Resize and crop that convert the image to the model's input.
      size: Height and width of the image in pixels.
    """
    rows, columns = logits.shape[:2]
    height, width = size
    box: Box = 0, 0, width, height
    if size != (rows, columns):
        box = fit.centre_box(height, width, rows)
    left, top, right, bottom = box
    first_row, last_row, above, below = _visible_range(top, bottom, height, rows)
    first, last, before, behind = _visible_range(left, right, width, columns)
    shape = last - first, last_row - first_row
    best = np.full(shape[::-1], -np.inf, np.float32)
    found = np.zeros(shape[::-1], np.uint8)
    # One class at a time: all logits at the size of a photograph may take a gigabyte.
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
    """Draw the predicted mask of an image file, as a palette image and as an overlay.

    Args:
      data: Contents of the image file, or the error of reading it.
      logits: Logits at the model's input size, (rows, columns, classes).
      fit: Resize and crop that convert the image to the model's input.

    Raises:
      UnreadableError: The file is not an image.
    """
    file = files.open_file(data, MAX_PIXELS, fit.white_level)
    mask = mask_of_image(logits, fit, (file.height, file.width))
    seen = np.where(mask == IGNORED, 0, mask)
    return in_colours(mask), Image.fromarray(overlay(file.decode(3), seen, PALETTE[1:]))


def in_colours(mask: np.ndarray) -> Image.Image:
    """Convert a mask, uint8 (H, W), to a palette image with the same pixel values."""
    picture = Image.fromarray(mask)
    picture.putpalette(PALETTE.ravel().tolist())
    return picture


def _visible_range(
    start: float, stop: float, size: int, num: int
) -> tuple[int, int, float, float]:
    """Range of pixels whose centres are inside a crop box, along one image axis.

    Args:
      start: Start of the box in image pixels.
      stop: End of the box in image pixels.
      size: Length of the image axis in pixels.
      num: Length of the box in pixels of the model's input.

    Returns:
      (start, stop) of the range in image pixels, then (start, stop) in pixels of the
      model's input.
    """
    first = max(0, math.ceil(start - 0.5))
    last = min(size, max(first + 1, math.ceil(stop - 0.5)))
    scale = num / (stop - start)
    begin, end = ((place - start) * scale for place in (first, last))
    return first, last, max(0.0, begin), min(float(num), end)
