"""Labels that are likely wrong, by what a trained model is confident of.

Confident learning, after Northcutt, Jiang and Chuang 2021 (Confident Learning:
Estimating Uncertainty in Dataset Labels, arXiv:1911.00068).
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from jaxtrain.plugins.doctor.report import Finding, of_rows
from jaxtrain.plugins.doctor.scan import Scan

# Kind of finding -> the splits whose labels are judged together, and its title. What a
# model has learnt is judged by itself: it agrees too much to set a threshold for the
# others.
JUDGED = {
    "wrong_labels": (("validation", "test"), "{} whose label is likely wrong"),
    "in_sample": (
        ("train",),
        "{} to train on whose label the model doubts, though it learnt it",
    ),
}
# A mean of equal numbers may be rounded to more than they are.
_ROUNDING = 1e-6


class Doubts(NamedTuple):
    """What a model's predictions say of the labels.

    Attributes:
      wrong: Examples whose label is likely wrong, the most likely first.
      better: Class that each of them is counted for.
      joint: Estimate of the joint distribution of given (rows) and true (columns)
        labels, (classes, classes); the sum is 1.
    """

    wrong: np.ndarray
    better: np.ndarray
    joint: np.ndarray

    @property
    def noise(self) -> float:
        """The estimated part of the labels that is wrong."""
        return float(1 - np.trace(self.joint))


def check_labels(
    scan: Scan,
    splits: Mapping[str, np.ndarray],
    predicted: Mapping[str, np.ndarray],
) -> tuple[list[Finding], dict[str, float]]:
    """Compare the labels with what a trained model predicts.

    Args:
      scan: Scan of a set that has labels.
      splits: Split -> the numbers of its examples in the store, (n,).
      predicted: Split -> their predicted probabilities, (n, classes); NaN where an
        image cannot be read.

    Returns:
      The findings; and by kind the estimated part of the labels that is wrong.
    """
    assert scan.labels is not None
    names = scan.class_names
    found: list[Finding] = []
    noise = {}
    for kind, (together, title) in JUDGED.items():
        judged = [split for split in together if split in splits]
        if not judged:
            continue
        rows = np.searchsorted(scan.index, np.concatenate([splits[n] for n in judged]))
        probabilities = np.concatenate([predicted[n] for n in judged])
        known = scan.readable[rows] & (scan.labels[rows] >= 0)
        rows, probabilities = rows[known], probabilities[known]
        if not len(rows):
            continue
        labels = scan.labels[rows]
        doubts = find_doubts(labels, probabilities)
        noise[kind] = doubts.noise
        details = {}
        for place, better in np.stack(doubts[:2], axis=1).tolist():
            given, chances = int(labels[place]), probabilities[place]
            details[int(rows[place])] = (
                f"given {names[given]} ({chances[given]:.0%}), "
                f"predicted {names[better]} ({chances[better]:.0%})"
            )
        found += of_rows(kind, "warning", title, [*details], details)
    return found, noise


def find_doubts(labels: np.ndarray, probabilities: np.ndarray) -> Doubts:
    """Compare the given labels with predicted probabilities.

    Args:
      labels: Numbers of the classes of the examples, (N,).
      probabilities: Probability of each class, (N, classes), by a model that was not
        trained on these examples.
    """
    num, num_classes = probabilities.shape
    given = probabilities[np.arange(num), labels]
    counts = np.bincount(labels, minlength=num_classes)
    # The threshold of a class is the mean confidence in it of those that carry it
    # (equation 2); one that none carries cannot be exceeded.
    sums = np.bincount(labels, weights=given, minlength=num_classes)
    thresholds = np.where(counts > 0, sums / np.maximum(counts, 1), np.inf)
    # The confident joint (equation 1) counts an example for the likeliest of the
    # classes whose thresholds it reaches; for none, if there is none.
    above = np.where(probabilities >= thresholds - _ROUNDING, probabilities, -1.0)
    likeliest = above.argmax(axis=1)
    confident = above.max(axis=1) >= 0
    confident_joint = np.zeros((num_classes, num_classes))
    np.add.at(confident_joint, (labels[confident], likeliest[confident]), 1)
    # Its rows are scaled to the number of examples that carry each label (equation 3).
    # Of a class of which nothing is confident, all labels are taken to be right.
    rows = confident_joint.sum(axis=1, keepdims=True)
    known = np.where(rows > 0, confident_joint, np.eye(num_classes))
    joint = known / np.maximum(rows, 1) * counts[:, None]
    wrong = np.flatnonzero(confident & (likeliest != labels))
    # Ranked by the normalised margin, of the given label to the class that is meant.
    margin = given[wrong] - probabilities[wrong, likeliest[wrong]]
    wrong = wrong[np.argsort(margin, kind="stable")]
    return Doubts(wrong, likeliest[wrong], joint / joint.sum())
