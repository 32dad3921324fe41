"""Out-of-distribution detection: scores and their metrics."""

import jax
import numpy as np

from jaxtrain.dtypes import widen

# Fraction of in-distribution examples at or above the threshold of `fpr_at_95_tpr`.
TRUE_POSITIVE_RATE = 0.95


def ordinary(logits: jax.Array) -> dict[str, jax.Array]:
    """Compute scores of images, each (B,); higher scores are more in-distribution.

    `max_softmax` is the largest class probability (Hendrycks and Gimpel 2017,
    arXiv:1610.02136). `energy` is the log-sum-exp of the logits: the negative energy of
    Liu et al. 2020 (arXiv:2010.03759) at temperature 1.
    """
    logits = widen(logits)
    return {
        "max_softmax": jax.nn.softmax(logits, axis=-1).max(-1),
        "energy": jax.nn.logsumexp(logits, axis=-1),
    }


def separation(ordinary: np.ndarray, other: np.ndarray) -> dict[str, float]:
    """Compute metrics of out-of-distribution detection from scores.

    `auroc` is the area under the ROC curve. `aupr_in` and `aupr_out` are average
    precisions, with in-distribution or out-of-distribution as the positive class.
    `fpr_at_95_tpr` is the false positive rate at the threshold that accepts 95 % of the
    in-distribution images (Hendrycks and Gimpel 2017, arXiv:1610.02136; Liu et al.
    2020, arXiv:2010.03759).

    Args:
      ordinary: Scores of in-distribution images, (N,); higher is more in-distribution.
      other: Scores of out-of-distribution images, (M,).
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
    """Mean of the precision with each positive score as the threshold."""

    def num_from(values: np.ndarray) -> np.ndarray:
        return len(values) - np.searchsorted(np.sort(values), positive, side="left")

    accepted = num_from(positive)
    return float((accepted / (accepted + num_from(negative))).mean())
