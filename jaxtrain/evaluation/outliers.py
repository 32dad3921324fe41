"""How well a score tells images of the task from others."""

import numpy as np

# Part of the ordinary examples that are accepted.
TRUE_POSITIVE_RATE = 0.95


def separation(ordinary: np.ndarray, other: np.ndarray) -> dict[str, float]:
    """Return how well a threshold on a score parts two sets.

    `auroc` is the probability that an ordinary example scores higher than another
    (equal scores count half), `aupr_in` and `aupr_out` the average precision of
    finding the ordinary ones and the others, `fpr_at_95_tpr` the part of the others
    that a threshold accepts which accepts 95 % of the ordinary ones (Hendrycks and
    Gimpel 2017, arXiv:1610.02136; Liu et al. 2020, arXiv:2010.03759).

    Args:
      ordinary: scores of images as the model was trained on, (N,); higher is more so.
      other: those of images of something else, (M,).
    """
    return {
        "auroc": auroc(ordinary, other),
        "aupr_in": average_precision(ordinary, other),
        "aupr_out": average_precision(-other, -ordinary),
        "fpr_at_95_tpr": false_positive_rate(ordinary, other),
    }


def auroc(positive: np.ndarray, negative: np.ndarray) -> float:
    """Return the area under the curve of true over false positives."""
    ordered = np.sort(negative)
    below = np.searchsorted(ordered, positive, side="left")
    up_to = np.searchsorted(ordered, positive, side="right")
    return float((below + up_to).mean() / (2 * len(negative)))


def average_precision(positive: np.ndarray, negative: np.ndarray) -> float:
    """Return the mean of the precision at the threshold of each positive example."""
    accepted = _num_from(positive, positive)
    return float((accepted / (accepted + _num_from(negative, positive))).mean())


def false_positive_rate(
    positive: np.ndarray, negative: np.ndarray, rate: float = TRUE_POSITIVE_RATE
) -> float:
    """Return the part of the negative examples above the threshold of a recall."""
    falling = np.sort(positive)[::-1]
    threshold = falling[int(np.ceil(rate * len(falling))) - 1]
    return float((negative >= threshold).mean())


def _num_from(values: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """Return how many values reach each threshold."""
    return len(values) - np.searchsorted(np.sort(values), thresholds, side="left")
