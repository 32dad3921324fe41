"""Whether a classifier is right as often as it is sure."""

from typing import Any

import numpy as np

NUM_BINS = 15


def calibration(scores: dict[str, np.ndarray]) -> dict[str, Any]:
    """Return the measures of calibration, and the table of a reliability diagram.

    `expected_calibration_error` is the mean distance of confidence and accuracy over
    15 bins of equal width, each weighted by its examples (Naeini et al. 2015; Guo et
    al. 2017, arXiv:1706.04599), `maximum_calibration_error` the largest, `brier_score`
    and `negative_log_likelihood` are means over the examples.

    Args:
      scores: of the examples (see `scores.scores`), (N,) each.
    """
    table = reliability(scores["confidence"], scores["correct"])
    filled = [row for row in table if row["num_examples"]]
    gaps = [abs(row["accuracy"] - row["confidence"]) for row in filled]
    return {
        "expected_calibration_error": expected_error(table),
        "maximum_calibration_error": float(max(gaps)),
        "brier_score": float(scores["brier"].mean(dtype=np.float64)),
        "negative_log_likelihood": float(scores["nll"].mean(dtype=np.float64)),
        "reliability": table,
    }


def expected_error(table: list[dict[str, Any]]) -> float:
    """Return the expected calibration error of the bins of `reliability`."""
    filled = [row for row in table if row["num_examples"]]
    gaps = [abs(row["accuracy"] - row["confidence"]) for row in filled]
    counts = [row["num_examples"] for row in filled]
    return float(np.average(gaps, weights=counts))


def reliability(
    confidence: np.ndarray, correct: np.ndarray, num_bins: int = NUM_BINS
) -> list[dict[str, Any]]:
    """Return a row for each bin: bounds, examples, mean confidence, accuracy.

    A bin has its upper bound, and not its lower one, as by Guo et al.; the means of an
    empty one are None.

    Args:
      confidence: in 0..1, (N,).
      correct: 0 or 1, (N,).
      num_bins: of equal width.
    """
    bounds = np.linspace(0, 1, num_bins + 1)
    # Probabilities add up to 1 as well as float32 can.
    number = np.searchsorted(bounds[1:-1], np.clip(confidence, 0, 1), side="left")
    rows = []
    for i in range(num_bins):
        inside = number == i
        count = int(inside.sum())
        rows.append(
            {
                "low": float(bounds[i]),
                "high": float(bounds[i + 1]),
                "num_examples": count,
                "confidence": _mean(confidence[inside]),
                "accuracy": _mean(correct[inside]),
            }
        )
    return rows


def _mean(values: np.ndarray) -> float | None:
    return float(values.mean(dtype=np.float64)) if len(values) else None
