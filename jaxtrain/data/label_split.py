"""Stratified hold-out for multi-label data.

Iterative stratification, after Sechidis, Tsoumakas and Vlahavas 2011 (On the
Stratification of Multi-Label Data, ECML PKDD).
"""

import numpy as np

# Tolerance for rounding errors in the number of examples that a split still needs.
SLACK = 1e-9


def split_by_labels(
    present: np.ndarray, fraction: float, draws: np.ndarray
) -> np.ndarray:
    """Return the mask of the examples to hold out, bool (N,).

    Each iteration processes the label that is rarest among the remaining examples. The
    first example of the label stays in training. Then `fraction` of the label's
    examples is held out, rounded up or down such that `fraction` of all examples is
    held out. Examples without labels come last.

    Args:
      present: Whether each example has each label, bool (N, labels).
      fraction: Fraction to hold out of all examples, and of the examples of each label.
      draws: Random number of each example, (N,); the smallest are chosen first.
    """
    num, num_labels = present.shape
    parts = np.array([1 - fraction, fraction])
    # Number of examples that the training split (row 0) and the held-out split (row 1)
    # still need, (2, labels + 1): for each label, and in total.
    totals = np.append(present.sum(axis=0), num)
    lacking = parts[:, None] * totals
    first = lacking[0].copy()
    rows = np.column_stack([present, np.ones(num, bool)]).astype(np.float64)
    left, waiting = totals[:-1].copy(), np.ones(num, bool)
    held_out = np.zeros(num, bool)
    order = np.argsort(draws, kind="stable")

    def share_out(examples: np.ndarray, label: int) -> None:
        for i in examples.tolist():
            due = lacking[1, label]
            behind = lacking[1, -1] * parts[0] > lacking[0, -1] * parts[1]
            if label < num_labels and lacking[0, label] == first[label]:
                part = 0  # One example of each label stays in training.
            elif due >= 1 - SLACK:
                part = 1
            else:
                # Less than one example is due: hold the example out only if the
                # held-out split lacks a larger fraction of its examples than training.
                part = int(due > SLACK and behind)
            held_out[i] = part
            lacking[part] -= rows[i]
        waiting[examples] = False
        left[:] -= present[examples].sum(axis=0)

    while left.any():
        label = int(np.argmin(np.where(left > 0, left, num + 1)))
        share_out(order[(waiting & present[:, label])[order]], label)
    share_out(order[waiting[order]], num_labels)
    return held_out
