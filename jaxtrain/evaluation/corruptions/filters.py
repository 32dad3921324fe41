"""Smoothing, stretching and shifting, as the libraries of the authors do them."""

import functools
import math

import numpy as np
from scipy import ndimage, signal


def gaussian_blur(images: np.ndarray, sigma: float) -> np.ndarray:
    """Smooth (N, H, W, C) as scikit-image: 4 sigma wide, with the border repeated."""
    return ndimage.gaussian_filter(images, (0, sigma, sigma, 0), mode="nearest")


def disk_blur(images: np.ndarray, radius: float, alias_blur: float) -> np.ndarray:
    """Smooth (N, H, W, C) by a disk, as OpenCV: the border is mirrored at its pixel."""
    kernel = disk(radius, alias_blur)
    reach = len(kernel) // 2
    # More than one reflection, where an image is smaller than the kernel.
    padding = [(0, 0), (reach, reach), (reach, reach), (0, 0)]
    padded = np.pad(images, padding, mode="reflect")
    # It is symmetric: a convolution is the correlation of OpenCV.
    kernel = kernel[None, :, :, None]
    return signal.oaconvolve(padded, kernel, mode="valid", axes=(1, 2))


@functools.cache
def disk(radius: float, alias_blur: float) -> np.ndarray:
    """Return a disk of sum 1, whose border a small Gaussian then smooths."""
    reach, taps = (8, 1) if radius <= 8 else (int(radius), 2)
    line = np.arange(-reach, reach + 1)
    inside = (line[:, None] ** 2 + line**2 <= radius**2).astype(np.float64)
    smooth = np.exp(-(np.arange(-taps, taps + 1) ** 2) / (2 * alias_blur**2))
    smooth /= smooth.sum()
    inside /= inside.sum()
    for axis in (0, 1):
        inside = ndimage.correlate1d(inside, smooth, axis, mode="mirror")
    return inside


def motion_blur(
    image: np.ndarray, radius: float, sigma: float, angle: float
) -> np.ndarray:
    """Smooth (H, W, C) along a line, as ImageMagick: half a Gaussian, on one side.

    Args:
      image: its border is repeated.
      radius: reach in pixels; the Gaussian is 2 x radius + 1 long.
      sigma: of the Gaussian, in pixels.
      angle: of the line, in degrees, clockwise from the right.
    """
    height, width, _ = image.shape
    steps = np.arange(2 * math.ceil(radius) + 1)
    weights = np.exp(-(steps**2) / (2 * sigma**2))
    direction = math.radians(angle)
    right = np.ceil(steps * math.cos(direction) - 0.5).astype(int)
    down = np.ceil(steps * math.sin(direction) - 0.5).astype(int)
    reach = len(steps)
    padded = np.pad(image, [(reach, reach), (reach, reach), (0, 0)], mode="edge")
    result = np.zeros(image.shape)
    for weight, x, y in zip(weights / weights.sum(), right, down, strict=True):
        top, left = reach + y, reach + x
        result += weight * padded[top : top + height, left : left + width]
    return result


def zoom(images: np.ndarray, factor: float) -> np.ndarray:
    """Enlarge the centre of (N, H, W, C), bilinear, to the same size."""
    _, height, width, _ = images.shape
    rows, columns = zoom_matrix(height, factor), zoom_matrix(width, factor)
    channels = np.moveaxis(images, -1, 1)
    return np.moveaxis(rows @ channels @ columns.T, 1, -1)


@functools.lru_cache(maxsize=256)
def zoom_matrix(size: int, factor: float) -> np.ndarray:
    """Return the weights of each old pixel (columns) in each new one (rows).

    The centre of so many pixels that they fill the size is stretched by linear
    interpolation from its first pixel to its last; what is too much is cut off.
    """
    part = math.ceil(size / factor)
    first, long = (size - part) // 2, round(part * factor)
    places = np.arange(long) * ((part - 1) / max(1, long - 1))
    below = np.minimum(places.astype(int), max(0, part - 2))
    matrix, rows = np.zeros((long, size)), np.arange(long)
    matrix[rows, first + below] = 1 - (places - below)
    matrix[rows, first + np.minimum(below + 1, part - 1)] += places - below
    trim = (long - size) // 2
    return matrix[trim : trim + size]
