"""Corruptions by noise, of each channel of each pixel by itself."""

from collections.abc import Sequence

import numpy as np

Draws = Sequence[np.random.Generator]


def gaussian_noise(images: np.ndarray, scale: float, draws: Draws) -> np.ndarray:
    shape = images.shape[1:]
    return images + np.stack([draw.normal(scale=scale, size=shape) for draw in draws])


def shot_noise(images: np.ndarray, photons: float, draws: Draws) -> np.ndarray:
    """Count photons: Poisson draws whose mean is `photons` where an image is white."""
    pairs = zip(images, draws, strict=True)
    return np.stack([draw.poisson(image * photons) for image, draw in pairs]) / photons


def impulse_noise(images: np.ndarray, amount: float, draws: Draws) -> np.ndarray:
    """Make a part of the values 0 or 1 (salt and pepper)."""
    uniform = np.stack([draw.random((2, *images.shape[1:])) for draw in draws], axis=1)
    salt = (uniform[1] < 0.5).astype(images.dtype)
    return np.where(uniform[0] < amount, salt, images)
