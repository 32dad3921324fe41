"""What the corruptions have in common: a generator of random numbers for each image."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Draws = Sequence[np.random.Generator]
# (image in 0..1, numbers of the severity, its generator) -> image.
OfImage = Callable[[np.ndarray, Any, np.random.Generator], np.ndarray]
# The same of images and a generator for each.
OfImages = Callable[[np.ndarray, Any, Draws], np.ndarray]


def each_image(corrupt: OfImage) -> OfImages:
    """Return what corrupts images one after the other."""

    @functools.wraps(corrupt)
    def corrupt_all(images: np.ndarray, level: Any, draws: Draws) -> np.ndarray:
        pairs = zip(images, draws, strict=True)
        return np.stack([corrupt(image, level, draw) for image, draw in pairs])

    return corrupt_all
