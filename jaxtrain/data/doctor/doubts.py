"""Findings of labels that are likely wrong, by the predictions of a trained run."""

from collections.abc import Mapping, Sequence

import numpy as np

from jaxtrain.data.doctor.classes import Classes
from jaxtrain.data.doctor.finding import Finding, of_rows
from jaxtrain.data.doctor.labels import Doubts, find_doubts
from jaxtrain.data.doctor.scan import Scan

# Kind of finding -> the splits whose labels are judged together. What a model has
# learnt is judged by itself: it agrees too much to set a threshold for the others.
JUDGED = {"wrong_labels": ("validation", "test"), "in_sample": ("train",)}
TITLES = {
    "wrong_labels": "{} whose label is likely wrong",
    "in_sample": "{} to train on whose label the model doubts, though it learnt it",
}


def check_labels(
    scan: Scan,
    classes: Classes,
    splits: Mapping[str, np.ndarray],
    predicted: Mapping[str, np.ndarray],
) -> tuple[list[Finding], dict[str, float]]:
    """Compare the labels with what a trained model predicts.

    Args:
      scan: of the set.
      classes: of the set.
      splits: name -> the numbers of its examples in the store, (n,).
      predicted: name -> their predicted probabilities, (n, classes); NaN where an image
        cannot be read.

    Returns:
      The findings; and by kind the estimated part of the labels that is wrong.
    """
    assert scan.labels is not None
    found: list[Finding] = []
    noise = {}
    for kind, names in JUDGED.items():
        judged = [name for name in names if name in splits]
        if not judged:
            continue
        rows = np.searchsorted(scan.index, np.concatenate([splits[n] for n in judged]))
        probabilities = np.concatenate([predicted[n] for n in judged])
        known = scan.readable[rows] & (scan.labels[rows] >= 0)
        rows, probabilities = rows[known], probabilities[known]
        if not len(rows):
            continue
        doubts = find_doubts(scan.labels[rows], probabilities)
        noise[kind] = doubts.noise
        details = _describe(classes.names, scan, rows, probabilities, doubts)
        found += of_rows(kind, "warning", TITLES[kind], [*details], details)
    return found, noise


def _describe(
    names: Sequence[str],
    scan: Scan,
    rows: np.ndarray,
    probabilities: np.ndarray,
    doubts: Doubts,
) -> dict[int, str]:
    assert scan.labels is not None
    details = {}
    for place, better in zip(
        doubts.wrong.tolist(), doubts.better.tolist(), strict=True
    ):
        given = int(scan.labels[rows[place]])
        details[int(rows[place])] = (
            f"given {names[given]} ({probabilities[place, given]:.0%}), predicted "
            f"{names[better]} ({probabilities[place, better]:.0%})"
        )
    return details
