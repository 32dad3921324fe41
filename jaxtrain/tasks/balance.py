"""How much each class counts in the loss."""

from collections.abc import Callable

import numpy as np

from jaxtrain.errors import UserError, counted

# Of effective numbers: that of a class grows up to 1,000 images.
EFFECTIVE_BETA = 0.999


def log_shares(count: Callable[[], np.ndarray]) -> np.ndarray:
    """Return the logarithm of the share of each class in the training split, (C,).

    Menon et al. 2021, arXiv:2007.07314. Of a class without examples it is that of half
    an example, and never counts: no example has it as its label.

    Args:
      count: Function that counts the examples of each class there, (C,).
    """
    try:
        counts = count()
    except UserError as error:
        raise UserError(f"train.logit_adjustment: {error}") from None
    return np.log(np.maximum(counts, 0.5) / counts.sum())


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
      weights: of each class; or balanced, one over its examples; or effective_number,
        one over 1 - 0.999 ** examples (Cui et al. 2019, arXiv:1901.05555).
      counts: examples of each class in the training split, (C,).

    Raises:
      UserError: there are as many weights as classes only elsewhere, or all are 0.
    """
    if isinstance(weights, str):
        numbers = np.asarray(counts, float)
        if weights == "effective_number":
            numbers = 1 - EFFECTIVE_BETA**numbers
        values = np.divide(1, numbers, out=np.zeros(len(counts)), where=counts > 0)
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
