"""Images with several labels, some not known, on which PyTorch has trained, too.

Needs NumPy only, as `tests/oracles/label_steps.py` imports it beside PyTorch.
"""

import numpy as np

NUM, NUM_LABELS = 32, 5
# The rate is exact in float32, which schedules compute in.
STEPS, RATE = 20, 2.0**-6
POSITIVE_WEIGHTS = (1.0, 2.0, 0.5, 1.5, 3.0)
MEAN, STD = (0.5, 0.4, 0.3), (0.3, 0.2, 0.1)


def examples() -> tuple[np.ndarray, np.ndarray]:
    """Return images, uint8 (32, 8, 8, 3), and labels of 1, 0 and -1, (32, 5)."""
    rng = np.random.default_rng(5)
    images = rng.integers(0, 256, (NUM, 8, 8, 3)).astype(np.uint8)
    labels = (rng.random((NUM, NUM_LABELS)) < 0.4).astype(np.float32)
    labels[rng.random(labels.shape) < 0.15] = -1
    labels[:, 0] = np.arange(NUM) % 2  # Of each image one is known.
    return images, labels
