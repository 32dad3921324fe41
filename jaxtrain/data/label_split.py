"""A held-out part of images with several labels: a share of each label, rare ones too.

Iterative stratification, after Sechidis, Tsoumakas and Vlahavas 2011 (On the
Stratification of Multi-Label Data, ECML PKDD).
"""

import numpy as np

# Differences of sums of fractions that are rounding.
SLACK = 1e-9


def split_by_labels(
    present: np.ndarray, fraction: float, draws: np.ndarray
) -> np.ndarray:
    """Choose the examples to hold out, bool (N,).

    The label with the fewest examples left is shared out first, while there is a
    choice: one example is kept, then the whole examples of its share are held out, and
    what remains of it is rounded so that the share of all examples is kept. Those
    without a label come last.

    Args:
      present: Whether each example has each label, bool (N, labels).
      fraction: Share of the examples, and of each label, to hold out.
      draws: Random numbers to choose by, (N,).
    """
    num, num_labels = present.shape
    parts = np.array([1 - fraction, fraction])
    # What each part lacks: of each label, and in the last column of examples.
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
                part = 0  # One of each label is kept.
            elif due >= 1 - SLACK:
                part = 1
            else:
                # What is left of an example goes where examples lack.
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
