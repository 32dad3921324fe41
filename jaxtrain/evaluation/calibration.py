"""Calibration of classifiers: expected calibration error and reliability diagram."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrain.dtypes import widen

NUM_BINS = 15


def scores(
    logits: jax.Array, labels: jax.Array, temperature: float = 1.0
) -> dict[str, jax.Array]:
    """Compute per-example scores of a classifier.

    Args:
      logits: Logits, (B, classes).
      labels: True classes, (B,); below 0 if unknown.
      temperature: Divisor of the logits.

    Returns:
      Arrays by name, (B,) each, float32 unless noted:
        - `confidence`: largest class probability.
        - `correct`: 1 if the most likely class is the true class, else 0.
        - `nll`: negative log-likelihood.
        - `brier`: squared distance of the probabilities to the one-hot label (Brier
          1950), in 0..2.
        - `known`: whether the example has a label, bool.
    """
    logs = jax.nn.log_softmax(widen(logits) / temperature, axis=-1)
    probabilities = jnp.exp(logs)
    true = jax.nn.one_hot(labels, logs.shape[-1], dtype=logs.dtype)
    return {
        "confidence": probabilities.max(-1),
        "correct": (jnp.argmax(logs, -1) == labels).astype(logs.dtype),
        "nll": -jnp.sum(jnp.where(true > 0, logs, 0), axis=-1),
        "brier": jnp.sum(jnp.square(probabilities - true), axis=-1),
        "known": labels >= 0,
    }


def calibration(scores: dict[str, np.ndarray]) -> dict[str, Any]:
    """Return calibration metrics and the table of a reliability diagram.

    `expected_calibration_error` is the mean absolute difference between confidence and
    accuracy over 15 bins of equal width, weighted by the number of examples per bin
    (Naeini et al. 2015; Guo et al. 2017, arXiv:1706.04599). The largest difference is
    the `maximum_calibration_error`. `brier_score` and `negative_log_likelihood` are
    means over the labelled examples.

    Args:
      scores: Results of `scores` for all examples, (N,) each.
    """
    scores = {name: x[scores["known"]] for name, x in scores.items()}
    table = reliability(scores["confidence"], scores["correct"])
    return {
        "expected_calibration_error": expected_error(table),
        "maximum_calibration_error": max(_gaps(table)[0]),
        "brier_score": _mean(scores["brier"]),
        "negative_log_likelihood": _mean(scores["nll"]),
        "reliability": table,
    }


def expected_error(table: list[dict[str, Any]]) -> float:
    """Return the expected calibration error.

    Args:
      table: Bins, as returned by `reliability`.
    """
    gaps, counts = _gaps(table)
    return float(np.average(gaps, weights=counts))


def reliability(
    confidence: np.ndarray, correct: np.ndarray, num_bins: int = NUM_BINS
) -> list[dict[str, Any]]:
    """Return one dict per bin: bounds, number of examples, mean confidence, accuracy.

    A bin excludes its lower bound and includes its upper bound, as in Guo et al. The
    means of an empty bin are None.

    Args:
      confidence: Largest class probability of each example, (N,).
      correct: 1 if the most likely class is the true class, else 0, (N,).
      num_bins: Number of bins of equal width.
    """
    bounds = np.linspace(0, 1, num_bins + 1)
    # Float32 probabilities may sum to slightly more than 1.
    number = np.searchsorted(bounds[1:-1], np.clip(confidence, 0, 1), side="left")
    return [
        {
            "low": float(bounds[i]),
            "high": float(bounds[i + 1]),
            "num_examples": int((number == i).sum()),
            "confidence": _mean(confidence[number == i]),
            "accuracy": _mean(correct[number == i]),
        }
        for i in range(num_bins)
    ]


def _gaps(table: list[dict[str, Any]]) -> tuple[list[float], list[int]]:
    """Return |accuracy - confidence| and `num_examples` of each non-empty bin."""
    filled = [row for row in table if row["num_examples"]]
    gaps = [abs(row["accuracy"] - row["confidence"]) for row in filled]
    return gaps, [row["num_examples"] for row in filled]


def _mean(values: np.ndarray) -> float | None:
    return float(values.mean(dtype=np.float64)) if len(values) else None
