"""What is wrong, or unusual, with targets that are columns of numbers."""

import numpy as np

from jaxtrain.data.columns import NAMES
from jaxtrain.data.doctor.report import Finding, of_rows
from jaxtrain.data.doctor.scan import SPLITS, Scan
from jaxtrain.data.image_source import Source
from jaxtrain.data.stores import targets_of

# Deviations from the mean beyond which a number is far off; of a normal distribution
# one in two hundred million is.
FAR = 6.0


def check_numbers(scan: Scan, train: Source) -> list[Finding]:
    """Report numbers that are missing or far off, and columns of one number.

    Args:
      scan: Scan of the set.
      train: The training split, of whose store all examples are.
    """
    targets = targets_of(train.store, scan.index)
    if NAMES not in train.facts or targets is None:
        return []
    found: list[Finding] = []
    training = scan.split == SPLITS.index("train")
    for name, column in zip(train.facts[NAMES], targets.T, strict=True):
        known = np.isfinite(column)
        title = f"{{}} without a number in the column {name!r}"
        rows = np.flatnonzero(~known).tolist()
        found += of_rows("numbers_missing", "note", title, rows)
        some = column[known & training].astype(np.float64)
        if not len(some) or some.min() == some.max():
            told = f"is {some[0]:g} in all" if len(some) else "has no number in any"
            title = f"the column {name!r} {told} training images"
            found.append(Finding("numbers_constant", "error", title))
            continue
        # Of labels, 0 and 1, the rare one is as far.
        far = (
            known
            & (len(np.unique(some)) > 2)
            & (np.abs(column - some.mean()) > FAR * some.std())
        )
        title = f"{{}} with a number far off in the column {name!r}"
        rows = np.flatnonzero(far).tolist()
        details = {row: f"{name} {column[row]:g}" for row in rows}
        found += of_rows("numbers_far", "warning", title, rows, details)
    return found
