"""A small model that attacks are compared on, written down in NumPy."""

from typing import Any

import numpy as np

# 20 images of 4x4 grey pixels, five classes.
NUM, SIDE, CLASSES, HIDDEN = 20, 4, 5, 24
STEPS = 40
EPSILONS = {"linf": 0.12, "l2": 0.4}


def arrays() -> dict[str, np.ndarray]:
    """Return images in 0..1, labels and the weights of two dense layers, float64."""
    rng = np.random.default_rng(7)
    pixels = SIDE * SIDE
    labels = rng.integers(0, CLASSES, NUM)
    return {
        "images": rng.uniform(0, 1, (NUM, SIDE, SIDE, 1)),
        "labels": labels,
        "targets": (labels + rng.integers(1, CLASSES, NUM)) % CLASSES,
        "first": rng.normal(size=(pixels, HIDDEN)) / np.sqrt(pixels),
        "last": rng.normal(size=(HIDDEN, CLASSES)) * 2 / np.sqrt(HIDDEN),
    }


def starts(norm: str) -> np.ndarray:
    """Return images in the ball to begin with, (NUM, SIDE, SIDE, 1), float64."""
    images, rng = arrays()["images"], np.random.default_rng(8)
    change = rng.uniform(-1, 1, images.shape)
    if norm == "l2":
        change /= np.sqrt(np.square(change).sum((1, 2, 3), keepdims=True))
    return np.clip(images + EPSILONS[norm] * change, 0, 1)


def logits(xp: Any, x: Any, first: Any, last: Any) -> Any:
    """Return the logits of images, by an array library that has `tanh`."""
    return xp.tanh(3 * (x.reshape(len(x), -1) - 0.5) @ first) @ last
