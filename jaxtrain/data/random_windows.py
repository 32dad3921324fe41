"""Random windows of images, as functions of a seed."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

# Left, top, right, bottom in pixels.
Box = tuple[float, float, float, float]
# Tries to find a window that lies in the image, as torchvision's RandomResizedCrop.
CROP_TRIES = 10


class Window(NamedTuple):
    """Random windows of the Inception crop (Szegedy et al. 2015).

    Attributes:
      scale: smallest and largest part of the area.
      ratio: smallest and largest aspect, width / height.
    """

    scale: tuple[float, ...] = (0.08, 1.0)
    ratio: tuple[float, ...] = (3 / 4, 4 / 3)


WINDOW = Window()


class Jitter(NamedTuple):
    """Random windows of images that are resized as a whole first.

    This is large-scale jitter (Ghiasi et al. 2021, arXiv:2012.07177): the window has
    the size of the result, and what lies beyond the image is border.

    Attributes:
      scale: smallest and largest factor on the size of the whole image.
      size: height and width that `Fit.centre_box` gets at the factor 1.
    """

    scale: tuple[float, ...]
    size: int


def place_along(
    draw: float, stored: int, resized: int, size: int
) -> tuple[float, float]:
    """Return the start and the end of a window along a side, in stored pixels.

    Args:
      draw: Number from 0 to 1 that says which of its places it has.
      size: Pixels of the window then; if it has more, it lies around the image.
    """
    room, scale = resized - size, stored / resized
    start = math.copysign(int(draw * (abs(room) + 1)), room)
    return start * scale, (start + size) * scale


def uniform(seed: Sequence[int], num: int) -> np.ndarray:
    """Return numbers from 0 to 1, float64 (num,), a function of the seed."""
    # Raw draws stay the same from one version of NumPy to the next (NEP 19).
    generator = np.random.Philox(np.random.SeedSequence(seed))
    return (generator.random_raw(num) >> 11) * 2.0**-53


def random_window(
    height: int, width: int, seed: Sequence[int], window: Window = WINDOW
) -> tuple[int, int, int, int]:
    """Draw a window within ranges of its area and of its aspect.

    Of ten draws the first that fits is taken; if none fits, the largest centred window
    within these aspects.

    Args:
      seed: Numbers, 0 or more; the window is a function of them and of the shape.

    Returns:
      Left, top, right and bottom.
    """
    draws = uniform(seed, 2 * CROP_TRIES + 2)
    (least, most), (tallest, widest) = window
    # Uniform in the logarithm, from the middle of the range to both sides.
    middle, reach = math.sqrt(tallest * widest), math.sqrt(widest / tallest)
    for area_draw, aspect_draw in zip(draws[2::2], draws[3::2], strict=True):
        area = height * width * (least + (most - least) * area_draw)
        aspect = middle * reach ** (2 * aspect_draw - 1)
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            top = int(draws[0] * (height - h + 1))
            left = int(draws[1] * (width - w + 1))
            return left, top, left + w, top + h
    w, h = largest_window(height, width, window)
    left, top = (width - w) // 2, (height - h) // 2
    return left, top, left + w, top + h


def largest_window(height: int, width: int, window: Window) -> tuple[int, int]:
    """Return width and height of the largest window within the aspects, 1 or more."""
    tallest, widest = window.ratio
    w, h = round(height * widest), round(width / tallest)
    return max(1, min(width, w)), max(1, min(height, h))
