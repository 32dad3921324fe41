"""Class weights and class log-priors for losses."""

from collections.abc import Callable

import numpy as np

from jaxtrain.errors import UserError, counted

# Beta of the effective number of samples, whose limit is 1 / (1 - beta) = 1,000.
EFFECTIVE_BETA = 0.999


def log_shares(count: Callable[[], np.ndarray]) -> np.ndarray:
    """Class log-priors of the training split, (C,), for logit adjustment.

    Menon et al. 2021, arXiv:2007.07314. For finite log-priors, a class without examples
    is counted as half an example.

    Args:
      count: Function that counts the training examples of each class, (C,).
    """
    try:
        counts = count()
    except UserError as error:
        raise UserError(f"task.logit_adjustment: {error}") from None
    return np.log(np.maximum(counts, 0.5) / counts.sum())


def class_weights(
    weights: str | tuple[float, ...], count: Callable[[], np.ndarray]
) -> np.ndarray:
    """Compute `relative_weights` for the classes of a training split.

    Args:
      weights: Weight of each class, `balanced` or `effective_number`.
      count: Function that counts the training examples of each class, (C,).
    """
    try:
        counts = count()
    except UserError as error:
        raise UserError(f"task.class_weights = {weights!r}: {error}") from None
    return relative_weights(weights, counts)


def relative_weights(
    weights: str | tuple[float, ...], counts: np.ndarray
) -> np.ndarray:
    """Class weights, normalized to a mean of 1 over the training examples.

    The mean weighted loss of a batch is then an unbiased estimate of the mean weighted
    loss of the training split, without an exchange of class counts between devices or
    micro-batches.

    Args:
      weights: Weight of each class; or `balanced`, 1 / examples; or `effective_number`,
        1 / (1 - 0.999 ** examples) (Cui et al. 2019, arXiv:1901.05555).
      counts: Number of training examples of each class, (C,).

    Raises:
      UserError: The number of weights differs from the number of classes, or all
        examples have weight 0.
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
            f"task.class_weights = {weights!r} has {counted(len(values), 'weight')}: "
            f"expected {len(counts)}, one per class"
        )
    mean = (values * counts).sum() / counts.sum()
    if mean <= 0:
        raise UserError(
            f"task.class_weights = {weights!r}: all training examples have weight 0; "
            "give a weight above 0 to a class with examples"
        )
    return values / mean
