"""Detection of label errors by confident learning.

Northcutt, Jiang and Chuang 2021 (Confident Learning: Estimating Uncertainty in Dataset
Labels, arXiv:1911.00068).
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from jaxtrain.plugins.doctor.report import Finding, of_rows
from jaxtrain.plugins.doctor.scan import Scan

# Kind of finding -> (splits with common class thresholds, title of the finding). The
# training split has separate thresholds, because models are overconfident on training
# examples.
JUDGED = {
    "wrong_labels": (("validation", "test"), "{} whose label is likely wrong"),
    "in_sample": (
        ("train",),
        "{} in training whose label the model doubts, although trained on it",
    ),
}
# Tolerance of thresholds, because the rounded mean of equal floats may exceed them.
_ROUNDING = 1e-6


class Doubts(NamedTuple):
    """Likely label errors, estimated from the predictions of a model.

    Attributes:
      wrong: Indices of the examples with likely wrong labels, most likely first, (n,).
      better: Suggested class of each example in `wrong`, (n,).
      joint: Estimated joint distribution of given (rows) and true (columns) labels,
        (classes, classes), with sum 1.
    """

    wrong: np.ndarray
    better: np.ndarray
    joint: np.ndarray

    @property
    def noise(self) -> float:
        """Estimated fraction of wrong labels."""
        return float(1 - np.trace(self.joint))


def check_labels(
    scan: Scan,
    splits: Mapping[str, np.ndarray],
    predicted: Mapping[str, np.ndarray],
) -> tuple[list[Finding], dict[str, float]]:
    """Compare labels with the predictions of a trained model.

    Args:
      scan: Scan of a labelled data set.
      splits: Split -> indices of its examples in the store, (n,).
      predicted: Split -> predicted probabilities, (n, classes); NaN for unreadable
        images.

    Returns:
      Findings, and kind of finding -> estimated fraction of wrong labels.
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
    """Find likely wrong labels by confident learning.

    Args:
      labels: Class indices of the examples, (N,).
      probabilities: Class probabilities, (N, classes), of a model not trained on these
        examples.
    """
    num, num_classes = probabilities.shape
    given = probabilities[np.arange(num), labels]
    counts = np.bincount(labels, minlength=num_classes)
    # The threshold of a class is the mean confidence of examples with that label
    # (equation 2); infinite for a class without examples.
    sums = np.bincount(labels, weights=given, minlength=num_classes)
    thresholds = np.where(counts > 0, sums / np.maximum(counts, 1), np.inf)
    # The confident joint (equation 1) counts each example for its most likely class
    # among the classes whose thresholds its probabilities reach, if any.
    above = np.where(probabilities >= thresholds - _ROUNDING, probabilities, -1.0)
    likeliest = above.argmax(axis=1)
    confident = above.max(axis=1) >= 0
    confident_joint = np.zeros((num_classes, num_classes))
    np.add.at(confident_joint, (labels[confident], likeliest[confident]), 1)
    # Scale each row to the number of examples with its label (equation 3). If no
    # example of a class is confident, all its labels count as correct.
    rows = confident_joint.sum(axis=1, keepdims=True)
    known = np.where(rows > 0, confident_joint, np.eye(num_classes))
    joint = known / np.maximum(rows, 1) * counts[:, None]
    wrong = np.flatnonzero(confident & (likeliest != labels))
    # Rank by the normalized margin: probability of the given class minus probability of
    # the suggested class.
    margin = given[wrong] - probabilities[wrong, likeliest[wrong]]
    wrong = wrong[np.argsort(margin, kind="stable")]
    return Doubts(wrong, likeliest[wrong], joint / joint.sum())
