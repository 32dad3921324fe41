"""Helpers of the data scan: standard deviations, split order, label check."""

from typing import Any

import numpy as np

# The splits of a run, in order.
SPLITS = ("train", "validation", "test")


def deviation(moments: np.ndarray) -> np.ndarray:
    """Return the standard deviation of each channel, (channels,).

    Args:
      moments: Mean and mean square of each channel, (2, channels).
    """
    mean, square = moments
    return np.sqrt(np.maximum(square - mean**2, 0))


def per_split(codes: np.ndarray) -> dict[str, int]:
    counts = np.bincount(codes, minlength=len(SPLITS)).tolist()
    return dict(zip(SPLITS, counts, strict=True))


def are_labels(targets: Any) -> bool:
    """Whether targets are class indices, one per example."""
    array = isinstance(targets, np.ndarray) and targets.ndim == 1
    return array and np.issubdtype(targets.dtype, np.integer)
