"""Images with a disc and a square, and the class of each pixel; needs NumPy only."""

import numpy as np

CLASSES = 3  # What is around; discs; squares.


def discs(num: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return noise with a disc and a square in it, and the class of each pixel.

    Returns:
      Images and classes, uint8 (num, size, size, 3) and (num, size, size).
    """
    rng = np.random.default_rng(0)
    rows, columns = np.mgrid[:size, :size]
    mask = np.zeros((num, size, size), np.uint8)
    for one in mask:
        y, x, v, u = rng.integers(6, size - 6, 4)
        one[(rows - y) ** 2 + (columns - x) ** 2 < 30] = 1
        one[np.maximum(abs(rows - v), abs(columns - u)) < 5] = 2
    image = rng.integers(0, 100, (*mask.shape, 3)) + 70 * (mask > 0)[..., None]
    return image.astype(np.uint8), mask
