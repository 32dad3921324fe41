"""How much each class counts in the loss."""

from collections.abc import Callable

import numpy as np

from jaxtrain.errors import UserError, counted


def class_weights(
    weights: str | tuple[float, ...], count: Callable[[], np.ndarray]
) -> np.ndarray:
    """Return `relative_weights` for the classes of a training split.

    Args:
      weights: of each class, or balanced.
      count: Function that counts the examples of each class there, (C,).
    """
    try:
        counts = count()
    except UserError as error:
        raise UserError(f"train.class_weights = {weights!r}: {error}") from None
    return relative_weights(weights, counts)


def relative_weights(
    weights: str | tuple[float, ...], counts: np.ndarray
) -> np.ndarray:
    """Return the weight of each class, so that the mean over the examples is 1.

    Then the mean of weighted losses over a batch is that of the training split on
    average, and no batch, device or micro-batch needs to know the others' classes.

    Args:
      weights: of each class, or balanced.
      counts: examples of each class in the training split, (C,).

    Raises:
      UserError: there are as many weights as classes only elsewhere, or all are 0.
    """
    if isinstance(weights, str):
        values = np.where(counts > 0, 1 / np.maximum(counts, 1), 0.0)
    else:
        values = np.array(weights, float)
    if len(values) != len(counts):
        raise UserError(
            f"train.class_weights = {weights!r}: {counted(len(values), 'weight')} for "
            f"{len(counts)} classes"
        )
    mean = (values * counts).sum() / counts.sum()
    if mean <= 0:
        raise UserError(
            f"train.class_weights = {weights!r}: all examples would weigh nothing"
        )
    return values / mean
