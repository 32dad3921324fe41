"""Multi-label metrics over the scores of a full split.

The arguments `kept` are the per-example arrays `score`, logits (N, labels), and
`label`, (N, labels): 1, 0 or NaN. NaN, an unknown label, is ignored. If a metric is
undefined for a label, for example because no image is positive, its value is None, and
is excluded from means.
"""

from collections.abc import Callable, Iterator, Mapping

import jax
import numpy as np

from jaxtrain.dtypes import widen

Kept = Mapping[str, np.ndarray]
# Default probability threshold.
THRESHOLD = 0.5
# Bound on the relative error of float32 probabilities, up to 3.3e-7 in XLA's sigmoid.
ROUNDING = 1e-6


def scores(outputs: jax.Array, target: jax.Array) -> dict[str, jax.Array]:
    """Per-example arrays for the metrics: logits and labels, (B, labels) each."""
    return {"score": widen(outputs), "label": target}


def average_precision(kept: Kept, num_examples: int) -> list[float | None]:
    """Average precision of each label, without interpolation, as in scikit-learn."""
    return [_average_precision(*column) for column in _columns(kept)]


def auroc(kept: Kept, num_examples: int) -> list[float | None]:
    """Area under the ROC curve of each label; ties count half."""
    return [_auroc(*column) for column in _columns(kept)]


def positives(kept: Kept, num_examples: int) -> list[int]:
    """Number of positive images of each label."""
    return np.sum(kept["label"] == 1, axis=0).tolist()


def mean_of(
    metric: Callable[[Kept, int], list[float | None]],
) -> Callable[[Kept, int], float | None]:
    """Create the function that averages a per-label metric over defined values."""

    def mean(kept: Kept, num_examples: int) -> float | None:
        known = [x for x in metric(kept, num_examples) if x is not None]
        return float(np.mean(known)) if known else None

    return mean


def best_thresholds(kept: Kept) -> list[float]:
    """Choose the probability threshold with the highest F1 for each label.

    A threshold is halfway between two successive probabilities, or slightly below the
    lowest probability. Of equally good thresholds, the highest is chosen. Labels
    without positives have the threshold 0.5.
    """
    return [_best_threshold(*column) for column in _columns(kept)]


def f1_counts(kept: Kept, thresholds: np.ndarray) -> np.ndarray:
    """Count true positives, positives, predicted positives per label, (3, labels)."""
    known = ~np.isnan(kept["label"])
    true = kept["label"] == 1
    found = (probability(kept["score"]) >= thresholds) & known
    return np.stack([np.sum(x, axis=0) for x in (true & found, true, found)])


def f1(counts: np.ndarray) -> list[float | None]:
    """F1 of each label; None if it has neither positives nor predicted positives."""
    hits, true, found = counts.tolist()
    rows = zip(hits, true, found, strict=True)
    return [2 * h / (n + p) if n + p else None for h, n, p in rows]


def probability(score: np.ndarray) -> np.ndarray:
    """Sigmoid of the logits, in float64."""
    return 0.5 * (1 + np.tanh(0.5 * score.astype(np.float64)))


def _columns(kept: Kept) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """For each label, yield descending scores (n,) and whether examples are positive.

    Examples for which the label is unknown are excluded.
    """
    for score, label in zip(kept["score"].T, kept["label"].T, strict=True):
        known = ~np.isnan(label)
        score, true = score[known], label[known] == 1
        order = np.argsort(-score, kind="stable")
        yield score[order], true[order]


def _cuts(score: np.ndarray, true: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Last index of each distinct score, and number of positives up to this index.

    Args:
      score: Scores in descending order, (n,).
      true: Whether each example is positive, bool (n,).
    """
    ends = np.append(np.flatnonzero(np.diff(score)), len(score) - 1)
    return ends, np.cumsum(true)[ends]


def _average_precision(score: np.ndarray, true: np.ndarray) -> float | None:
    if not true.any():
        return None
    ends, hits = _cuts(score, true)
    gained = np.diff(hits, prepend=0) / hits[-1]
    return float(np.sum(gained * hits / (ends + 1)))


def _auroc(score: np.ndarray, true: np.ndarray) -> float | None:
    if true.all() or not true.any():
        return None
    ends, hits = _cuts(score, true)
    misses = ends + 1 - hits
    heights = hits - np.diff(hits, prepend=0) / 2
    area = np.sum(np.diff(misses, prepend=0) * heights)
    return float(area / (hits[-1] * misses[-1]))


def _best_threshold(score: np.ndarray, true: np.ndarray) -> float:
    if not true.any():
        return THRESHOLD
    ends, hits = _cuts(score, true)
    best = int(np.argmax(2 * hits / (ends + 1 + hits[-1])))
    chosen = probability(score[ends[[best]]])[0]
    if best + 1 == len(ends):
        return float(chosen) * (1 - ROUNDING)
    return float((chosen + probability(score[ends[[best + 1]]])[0]) / 2)
