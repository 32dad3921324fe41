"""Metrics of images with several labels, of the scores of a whole split.

Each looks at what is `kept`: `score`, the logits (N, labels), and `label`, 1 or 0, or
NaN where it is not known, which counts nowhere. A label without a value that the metric
needs, such as one that no image has, has None, and means leave it out.
"""

from collections.abc import Callable, Iterator, Mapping

import jax
import numpy as np

from jaxtrain.dtypes import widen

Kept = Mapping[str, np.ndarray]
# Where validation could choose none.
THRESHOLD = 0.5
# Part of a probability by which one that is computed in float32 may be less; XLA's
# sigmoid is up to 3.3e-7 off.
ROUNDING = 1e-6


def scores(outputs: jax.Array, target: jax.Array) -> dict[str, jax.Array]:
    """Keep the logits of the labels, and whether they are there, (B, labels)."""
    return {"score": widen(outputs), "label": target}


def average_precision(kept: Kept, num_examples: int) -> list[float | None]:
    """Return the area under the precision-recall curve of each label, by steps."""
    return [_average_precision(*column) for column in _columns(kept)]


def auroc(kept: Kept, num_examples: int) -> list[float | None]:
    """Return the area under the ROC curve of each label; ties count half."""
    return [_auroc(*column) for column in _columns(kept)]


def positives(kept: Kept, num_examples: int) -> list[int]:
    """Return the number of images that have each label."""
    return np.sum(kept["label"] == 1, axis=0).tolist()


def mean_of(
    metric: Callable[[Kept, int], list[float | None]],
) -> Callable[[Kept, int], float | None]:
    """Return the metric that is the mean over the labels that have a value."""

    def mean(kept: Kept, num_examples: int) -> float | None:
        known = [x for x in metric(kept, num_examples) if x is not None]
        return float(np.mean(known)) if known else None

    return mean


def best_thresholds(kept: Kept) -> list[float]:
    """Return for each label the probability from which on F1 is the highest.

    It lies halfway to the next lower score, or barely below the lowest. Of equal ones
    the highest is taken; 0.5 for a label that no image has.
    """
    return [_best_threshold(*column) for column in _columns(kept)]


def f1_counts(kept: Kept, thresholds: np.ndarray) -> np.ndarray:
    """Return hits, images that have it, and images said to have it, (3, labels)."""
    known = ~np.isnan(kept["label"])
    true = kept["label"] == 1
    found = (probability(kept["score"]) >= thresholds) & known
    return np.stack([np.sum(x, axis=0) for x in (true & found, true, found)])


def f1(counts: np.ndarray) -> list[float | None]:
    """Return F1 of each label; None where none has it, and none is said to."""
    hits, true, found = counts.tolist()
    rows = zip(hits, true, found, strict=True)
    return [2 * h / (n + p) if n + p else None for h, n, p in rows]


def probability(score: np.ndarray) -> np.ndarray:
    """Return the probability of each label of its logit, in float64."""
    return 0.5 * (1 + np.tanh(0.5 * score.astype(np.float64)))


def _columns(kept: Kept) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the scores that are known of each label, falling, and whether it is there.

    Both (n,).
    """
    for score, label in zip(kept["score"].T, kept["label"].T, strict=True):
        known = ~np.isnan(label)
        score, true = score[known], label[known] == 1
        order = np.argsort(-score, kind="stable")
        yield score[order], true[order]


def _cuts(score: np.ndarray, true: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the places after which another score comes, and the hits up to there."""
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
    place = int(np.argmax(2 * hits / (ends + 1 + hits[-1])))
    chosen = probability(score[ends[[place]]])[0]
    if place + 1 == len(ends):
        return float(chosen) * (1 - ROUNDING)
    return float((chosen + probability(score[ends[[place + 1]]])[0]) / 2)
