"""Labels that are likely wrong, by what a trained model is confident of.

Confident learning, after Northcutt, Jiang and Chuang 2021 (Confident Learning:
Estimating Uncertainty in Dataset Labels, arXiv:1911.00068).
"""

from dataclasses import dataclass

import numpy as np

# A mean of equal numbers may be rounded to more than they are.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class Doubts:
    """What a model's predictions say of the labels.

    Attributes:
      wrong: the examples whose label is likely wrong, the most likely first.
      better: the class that each of them is counted for.
      joint: estimate of the joint distribution of given (rows) and true (columns)
        labels, (classes, classes); the sum is 1.
    """

    wrong: np.ndarray
    better: np.ndarray
    joint: np.ndarray

    @property
    def noise(self) -> float:
        """The estimated part of the labels that is wrong."""
        return float(1 - np.trace(self.joint))


def find_doubts(labels: np.ndarray, probabilities: np.ndarray) -> Doubts:
    """Compare the given labels with predicted probabilities.

    Args:
      labels: of the examples, (N,) numbers of classes.
      probabilities: of each class, (N, classes), by a model that was not trained on
        these examples.
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
    wrong = np.flatnonzero(confident & (likeliest != labels))
    # Ranked by the normalised margin, of the given label to the class that is meant.
    margin = given[wrong] - probabilities[wrong, likeliest[wrong]]
    wrong = wrong[np.argsort(margin, kind="stable")]
    return Doubts(wrong, likeliest[wrong], _calibrate(confident_joint, counts))


def _calibrate(confident_joint: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Scale the rows to the number of examples that carry each label (equation 3)."""
    rows = confident_joint.sum(axis=1, keepdims=True)
    # Of a class of which nothing is confident, all labels are taken to be right.
    known = np.where(rows > 0, confident_joint, np.eye(len(counts)))
    joint = known / np.maximum(rows, 1) * counts[:, None]
    return joint / joint.sum()
