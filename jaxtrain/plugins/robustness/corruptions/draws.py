"""Types of corruption functions, which take one random generator per image."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Draws = Sequence[np.random.Generator]
# (image in 0..1, parameters of the severity, generator) -> image in 0..1.
OfImage = Callable[[np.ndarray, Any, np.random.Generator], np.ndarray]
# (images in 0..1, parameters of the severity, generators) -> images in 0..1.
OfImages = Callable[[np.ndarray, Any, Draws], np.ndarray]


def each_image(corrupt: OfImage) -> OfImages:
    """Convert a corruption of one image to a corruption of a batch."""

    @functools.wraps(corrupt)
    def corrupt_all(images: np.ndarray, level: Any, draws: Draws) -> np.ndarray:
        pairs = zip(images, draws, strict=True)
        return np.stack([corrupt(image, level, draw) for image, draw in pairs])

    return corrupt_all
