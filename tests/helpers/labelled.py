"""Images with labels, and a teacher, on which PyTorch has trained, too.

Needs NumPy only, as `tests/oracles/label_steps.py` and `teacher_steps.py` import it
beside PyTorch.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

NUM, NUM_LABELS = 32, 5
# The rate is exact in float32, which schedules compute in.
STEPS, RATE = 20, 2.0**-6
POSITIVE_WEIGHTS = (1.0, 2.0, 0.5, 1.5, 3.0)
MEAN, STD = (0.5, 0.4, 0.3), (0.3, 0.2, 0.1)
# Of the teacher, and of what it says.
TEACHER_MEAN, TEACHER_STD = (0.1, 0.2, 0.3), (0.4, 0.5, 0.6)
SHARE, TEMPERATURE = 0.75, 2.0


def examples() -> tuple[np.ndarray, np.ndarray]:
    """Return images, uint8 (32, 8, 8, 3), and labels of 1, 0 and -1, (32, 5)."""
    rng = np.random.default_rng(5)
    images = rng.integers(0, 256, (NUM, 8, 8, 3)).astype(np.uint8)
    labels = (rng.random((NUM, NUM_LABELS)) < 0.4).astype(np.float32)
    labels[rng.random(labels.shape) < 0.15] = -1
    labels[:, 0] = np.arange(NUM) % 2  # Of each image one is known.
    return images, labels


def classes() -> np.ndarray:
    """Return the class of each image, int32 (32,)."""
    return np.random.default_rng(6).integers(0, NUM_LABELS, NUM).astype(np.int32)


def teacher_arrays(shaped: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return weights of a teacher, float32, with the shapes of some by their names."""
    rng, found = np.random.default_rng(7), {}
    for name in sorted(shaped):
        shape = tuple(shaped[name].shape)
        values = rng.standard_normal(shape)
        if len(shape) > 1:
            values *= 2 / np.sqrt(np.prod(shape[1:]))
        elif name.startswith("bn") and not name.endswith(("bias", "mean")):
            values = 1 + 0.5 * np.tanh(values)
        found[name] = np.asarray(values, np.float32)
    return found
