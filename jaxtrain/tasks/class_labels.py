"""Checks of targets that are class indices."""

from typing import Any

import numpy as np

from jaxtrain.errors import UserError


def check_labels(targets: Any, split: str, num_classes: int | None) -> None:
    """Raise UserError for targets that are not class indices (N,).

    Args:
      targets: All or some targets of a split; negative for unknown classes.
      split: Name of the split in messages.
      num_classes: Number of classes. None sets no upper bound for the indices.
    """
    array = isinstance(targets, np.ndarray) and targets.ndim == 1
    if not (array and targets.dtype.kind in "iu"):
        told = getattr(targets, "dtype", type(targets).__name__)
        raise UserError(
            f"{split} has targets of type {told} and shape {np.shape(targets)}: "
            "expected class indices, integers of shape (N,); choose another task"
        )
    if targets.max() < 0:
        raise UserError(f"{split} has no labels: choose another split")
    if num_classes is not None and targets.max() >= num_classes:
        first = int(np.argmax(targets >= num_classes))
        raise UserError(
            f"{split} has the label {targets[first]} for image {first}: expected 0 to "
            f"{num_classes - 1}, or -1 for an unknown class"
        )
