"""How well a score tells images of the task from others."""

import jax
import numpy as np

from jaxtrain.dtypes import widen

# Part of the ordinary examples that are accepted.
TRUE_POSITIVE_RATE = 0.95


def ordinary(logits: jax.Array) -> dict[str, jax.Array]:
    """Return how ordinary an image looks to the model, (B,) each: higher is more so.

    `max_softmax` is the probability of the class ranked first (Hendrycks and Gimpel
    2017, arXiv:1610.02136), `energy` the logarithm of the sum of the exponentials of
    the logits: the negative of the energy of Liu et al. 2020 (arXiv:2010.03759) at
    temperature 1.
    """
    logits = widen(logits)
    return {
        "max_softmax": jax.nn.softmax(logits, axis=-1).max(-1),
        "energy": jax.nn.logsumexp(logits, axis=-1),
    }


def separation(ordinary: np.ndarray, other: np.ndarray) -> dict[str, float]:
    """Return how well a threshold on a score parts two sets.

    `auroc` is the probability that an ordinary example scores higher than another
    (equal scores count half), `aupr_in` and `aupr_out` the average precision of
    finding the ordinary ones and the others, `fpr_at_95_tpr` the part of the others
    that a threshold accepts which accepts 95 % of the ordinary ones (Hendrycks and
    Gimpel 2017, arXiv:1610.02136; Liu et al. 2020, arXiv:2010.03759).

    Args:
      ordinary: Scores of images as the model was trained on, (N,); higher is more so.
      other: Scores of images of something else, (M,).
    """
    falling = np.sort(ordinary)[::-1]
    threshold = falling[int(np.ceil(TRUE_POSITIVE_RATE * len(falling))) - 1]
    return {
        "auroc": _auroc(ordinary, other),
        "aupr_in": _average_precision(ordinary, other),
        "aupr_out": _average_precision(-other, -ordinary),
        "fpr_at_95_tpr": float((other >= threshold).mean()),
    }


def _auroc(positive: np.ndarray, negative: np.ndarray) -> float:
    ordered = np.sort(negative)
    below = np.searchsorted(ordered, positive, side="left")
    up_to = np.searchsorted(ordered, positive, side="right")
    return float((below + up_to).mean() / (2 * len(negative)))


def _average_precision(positive: np.ndarray, negative: np.ndarray) -> float:
    """Return the mean of the precision at the threshold of each positive example."""

    def num_from(values: np.ndarray) -> np.ndarray:
        return len(values) - np.searchsorted(np.sort(values), positive, side="left")

    accepted = num_from(positive)
    return float((accepted / (accepted + num_from(negative))).mean())
