"""Blur corruptions, with filters as in OpenCV, scikit-image and ImageMagick."""

import functools
import math

import numpy as np
from scipy import ndimage, signal

from jaxtrain.plugins.robustness.corruptions.draws import Draws, each_image

# Range of the random angle of motion blur, in degrees.
ANGLES = (-45, 45)


def defocus_blur(
    images: np.ndarray, level: tuple[float, float], draws: Draws
) -> np.ndarray:
    """Blur with a disk kernel, with mirrored borders as in OpenCV.

    `level` holds the arguments of `disk`.
    """
    kernel = disk(*level)
    reach = len(kernel) // 2
    # NumPy reflects repeatedly if an image is smaller than the kernel.
    padding = [(0, 0), (reach, reach), (reach, reach), (0, 0)]
    padded = np.pad(images, padding, mode="reflect")
    # The kernel is symmetric: convolution equals OpenCV's correlation.
    kernel = kernel[None, :, :, None]
    return signal.oaconvolve(padded, kernel, mode="valid", axes=(1, 2))


@functools.cache
def disk(radius: float, alias_blur: float) -> np.ndarray:
    """Disk kernel with sum 1, smoothed by a Gaussian of sigma `alias_blur`."""
    reach, taps = (8, 1) if radius <= 8 else (int(radius), 2)
    line = np.arange(-reach, reach + 1)
    inside = (line[:, None] ** 2 + line**2 <= radius**2).astype(np.float64)
    smooth = np.exp(-(np.arange(-taps, taps + 1) ** 2) / (2 * alias_blur**2))
    smooth /= smooth.sum()
    inside /= inside.sum()
    for axis in (0, 1):
        inside = ndimage.correlate1d(inside, smooth, axis, mode="mirror")
    return inside


def glass_blur(
    images: np.ndarray, level: tuple[float, int, int], draws: Draws
) -> np.ndarray:
    """Blur, displace pixels randomly along both axes, and blur again.

    `level` is (sigma of both blurs in pixels, maximum displacement in pixels, number of
    passes over the image).

    The authors' code, which created ImageNet-C and CIFAR-10-C, was meant to swap pairs
    of pixels, but copies one pixel to the other, because NumPy slices are views. This
    function reproduces the copy.
    """
    sigma, reach, times = level
    _, height, width, channels = images.shape
    blurred = np.floor(255 * np.clip(_gaussian_blur(images, sigma), 0, 1)) / 255
    rows = np.arange(height - reach, reach, -1)
    columns = np.arange(width - reach, reach, -1)
    # With the images along the last axis, each step copies contiguous memory.
    pixels = np.ascontiguousarray(np.moveaxis(blurred, 0, 2))
    size = (times, len(rows), len(columns), 2)
    moves = np.stack([draw.integers(-reach, reach, size) for draw in draws], axis=-1)
    one = np.arange(len(images))
    for moved in moves:
        for row, across in zip(rows, moved, strict=True):
            for column, (right, down) in zip(columns, across, strict=True):
                pixels[row, column] = pixels[row + down, column + right, one]
    moved_images = np.moveaxis(pixels, 2, 0).reshape(-1, height, width, channels)
    return _gaussian_blur(moved_images, sigma)


def _gaussian_blur(images: np.ndarray, sigma: float) -> np.ndarray:
    """Gaussian blur as in scikit-image: truncated at 4 sigma, with edge padding."""
    return ndimage.gaussian_filter(images, (0, sigma, sigma, 0), mode="nearest")


@each_image
def motion_blur(
    image: np.ndarray, level: tuple[float, float], draw: np.random.Generator
) -> np.ndarray:
    return along_line(image, *level, draw.uniform(*ANGLES))


def along_line(
    image: np.ndarray, radius: float, sigma: float, angle: float
) -> np.ndarray:
    """Motion blur along a line, with a one-sided Gaussian kernel as in ImageMagick.

    Args:
      image: Image, (H, W, C); edge-padded.
      radius: Radius in pixels; the kernel has 2 * ceil(radius) + 1 taps.
      sigma: Standard deviation of the Gaussian, in pixels.
      angle: Angle of the line, in degrees, clockwise from the right.
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


def zoom_blur(images: np.ndarray, level: tuple[int, float], draws: Draws) -> np.ndarray:
    """Average each image with zoomed versions of it.

    `level` is (number of zoom factors, step between them); the first factor is 1.
    """
    number, step = level
    total = images.copy()
    for i in range(number):
        total += zoom(images, 1 + i * step)
    return total / (number + 1)


def zoom(images: np.ndarray, factor: float) -> np.ndarray:
    """Zoom into the centre of images (N, H, W, C), bilinearly, at constant size."""
    _, height, width, _ = images.shape
    rows, columns = _zoom_matrix(height, factor), _zoom_matrix(width, factor)
    channels = np.moveaxis(images, -1, 1)
    return np.moveaxis(rows @ channels @ columns.T, 1, -1)


@functools.lru_cache(maxsize=256)
def _zoom_matrix(size: int, factor: float) -> np.ndarray:
    """Interpolation matrix that zooms an image axis, (size, size); rows are outputs.

    The central pixels are resized linearly with aligned corners, as by
    `scipy.ndimage.zoom`, then cropped to `size`.
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
