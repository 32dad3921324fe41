"""Random crop windows of images, drawn on the host, deterministic given a seed."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

# Left, top, right, bottom in pixels.
Box = tuple[float, float, float, float]
# Number of attempts to draw a window that fits, as in torchvision's RandomResizedCrop.
CROP_TRIES = 10


class Window(NamedTuple):
    """Distribution of random resized crops (Szegedy et al. 2015).

    Attributes:
      scale: Range of the window's area relative to the image area.
      ratio: Range of the aspect ratio, width / height.
    """

    scale: tuple[float, ...] = (0.08, 1.0)
    ratio: tuple[float, ...] = (3 / 4, 4 / 3)


WINDOW = Window()


class Jitter(NamedTuple):
    """Distribution of large-scale jitter (Ghiasi et al. 2021, arXiv:2012.07177).

    The image is resized by a random factor, then cropped or padded to the output size.

    Attributes:
      scale: Range of the scale factor of the image.
      size: Height and width to which scale factor 1 resizes `Fit.centre_box`.
    """

    scale: tuple[float, ...]
    size: int


def place_along(
    draw: float, stored: int, resized: int, size: int
) -> tuple[float, float]:
    """Return the start and end of a window on an axis, in pixels of the stored image.

    Args:
      draw: Random number in 0..1 that determines the position.
      stored: Size of the stored image along the axis, in pixels.
      resized: Size of the resized image along the axis, in pixels.
      size: Size of the window in pixels of the resized image. A window larger than
        `resized` encloses the image.
    """
    room, scale = resized - size, stored / resized
    start = math.copysign(int(draw * (abs(room) + 1)), room)
    return start * scale, (start + size) * scale


def uniform(seed: Sequence[int], num: int) -> np.ndarray:
    """Return uniform random numbers in [0, 1), float64 (num,), for a seed."""
    # Raw draws are stable between versions of NumPy (NEP 19).
    generator = np.random.Philox(np.random.SeedSequence(seed))
    return (generator.random_raw(num) >> 11) * 2.0**-53


def random_window(
    height: int, width: int, seed: Sequence[int], window: Window = WINDOW
) -> tuple[int, int, int, int]:
    """Draw a window of random area and aspect ratio.

    The first of ten draws that fits into the image is used. If none fits, the window is
    the largest centred window within the range of aspect ratios.

    Args:
      height: Height of the image in pixels.
      width: Width of the image in pixels.
      seed: Non-negative integers that, with the image size, determine the window.
      window: Ranges of the area and the aspect ratio.

    Returns:
      Left, top, right and bottom in pixels.
    """
    draws = uniform(seed, 2 * CROP_TRIES + 2)
    (least, most), (tallest, widest) = window
    # The aspect ratio is log-uniform: symmetric around the geometric mean of its range.
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
    """Return (width, height) of the largest window in the range of aspect ratios."""
    tallest, widest = window.ratio
    w, h = round(height * widest), round(width / tallest)
    return max(1, min(width, w)), max(1, min(height, h))
