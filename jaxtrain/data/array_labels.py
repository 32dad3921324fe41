"""Labels of arrays: which of them are one class an image."""

from collections.abc import Sequence

import numpy as np


def are_classes(label: np.ndarray) -> bool:
    """Whether labels are numbers of classes: (N,), or integers (N, 1) as of Keras."""
    return label.ndim == 1 or (label.shape[1:] == (1,) and label.dtype.kind in "biu")


def from_one_hot(labels: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return the numbers of classes, int64 (N,), if all labels are one-hot.

    Labels of which one row is not one-hot are returned as they are: several labels an
    image, or numbers.

    Args:
      labels: Labels of each split, any arrays.
    """
    if all(map(_is_one_hot, labels)):
        return [label.argmax(axis=1) for label in labels]
    return [*labels]


def _is_one_hot(label: np.ndarray) -> bool:
    if label.ndim != 2 or label.shape[1] < 2:
        return False
    ones = label == 1
    return bool((ones | (label == 0)).all() and (ones.sum(axis=1) == 1).all())
