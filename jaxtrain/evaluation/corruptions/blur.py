"""Corruptions by blur."""

import numpy as np

from jaxtrain.evaluation.corruptions import filters
from jaxtrain.evaluation.corruptions.noise import Draws

# Degrees within which motion blurs.
ANGLES = (-45, 45)


def defocus_blur(
    images: np.ndarray, level: tuple[float, float], draws: Draws
) -> np.ndarray:
    return filters.disk_blur(images, *level)


def glass_blur(
    images: np.ndarray, level: tuple[float, int, int], draws: Draws
) -> np.ndarray:
    """Blur, move pixels by up to `reach` in both directions, and blur again.

    The authors mean to swap pairs of pixels; as their arrays are views, what they do,
    and their data have, is that the one becomes a copy of the other.
    """
    sigma, reach, times = level
    _, height, width, channels = images.shape
    blurred = np.floor(255 * np.clip(filters.gaussian_blur(images, sigma), 0, 1)) / 255
    rows = np.arange(height - reach, reach, -1)
    columns = np.arange(width - reach, reach, -1)
    # With the images last each step copies one row of memory.
    pixels = np.ascontiguousarray(np.moveaxis(blurred, 0, 2))
    size = (times, len(rows), len(columns), 2)
    moves = np.stack([draw.integers(-reach, reach, size) for draw in draws], axis=-1)
    one = np.arange(len(images))
    for moved in moves:
        for row, across in zip(rows, moved, strict=True):
            for column, (right, down) in zip(columns, across, strict=True):
                pixels[row, column] = pixels[row + down, column + right, one]
    moved_images = np.moveaxis(pixels, 2, 0).reshape(-1, height, width, channels)
    return filters.gaussian_blur(moved_images, sigma)


def motion_blur(
    images: np.ndarray, level: tuple[float, float], draws: Draws
) -> np.ndarray:
    pairs = zip(images, draws, strict=True)
    return np.stack(
        [
            filters.motion_blur(image, *level, draw.uniform(*ANGLES))
            for image, draw in pairs
        ]
    )


def zoom_blur(images: np.ndarray, level: tuple[int, float], draws: Draws) -> np.ndarray:
    """Return the mean of an image and of so many enlargements, from 1 on."""
    number, step = level
    total = images.copy()
    for i in range(number):
        total += filters.zoom(images, 1 + i * step)
    return total / (number + 1)
