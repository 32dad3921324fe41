"""Numbers among the targets that are far off the others of their column."""

import numpy as np

from jaxtrain.config import Config
from jaxtrain.data.columns import NAMES, original
from jaxtrain.data.image_source import Source
from jaxtrain.data.stores import targets_of
from jaxtrain.plugins.doctor.report import Finding, of_rows
from jaxtrain.plugins.doctor.scan import SPLITS, Scan

# Deviations from the mean beyond which a number is far off; of a normal distribution
# one in five hundred million is.
FAR = 6.0
# Losses of regression that grow linearly with an error.
ROBUST = ("huber", "l1", "quantiles")


def check_numbers(scan: Scan, train: Source, config: Config) -> list[Finding]:
    """Report numbers that are far off, of columns with more than two values.

    Args:
      scan: Scan of the set.
      train: The training split, of whose store all examples are.
      config: Config of the run.
    """
    targets = targets_of(train.store, scan.index)
    if NAMES not in train.facts or targets is None:
        return []
    targets = original(targets, train.facts)
    # Of numbers far from 0, which are float64 here, the first digits are the same.
    digits = 12 if targets.dtype == np.float64 else 6
    found: list[Finding] = []
    robust = config.task_options.get("loss") in ROBUST
    hint = "" if robust else f"Losses that bear it: {', '.join(ROBUST)}."
    training = scan.split == SPLITS.index("train")
    for name, column in zip(train.facts[NAMES], targets.T, strict=True):
        known = np.isfinite(column)
        some = column[known & training].astype(np.float64)
        # Of labels, -1, 0 and 1, those that are rare would be.
        if len(np.unique(some)) <= 2 or np.isin(some, (-1, 0, 1)).all():
            continue
        far = known & (np.abs(column - some.mean()) > FAR * some.std())
        rows = np.flatnonzero(far).tolist()
        title = f"{{}} with a number far off in the column {name!r}"
        details = {row: f"{name} {column[row]:.{digits}g}" for row in rows}
        found += of_rows("numbers_far", "warning", title, rows, details, hint=hint)
    return found
