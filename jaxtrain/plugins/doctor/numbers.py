"""Search for outliers in numeric targets."""

import numpy as np

from jaxtrain.config import Config
from jaxtrain.data.columns import NAMES, original
from jaxtrain.data.image_source import Source
from jaxtrain.data.stores import targets_of
from jaxtrain.plugins.doctor.report import Finding, of_rows
from jaxtrain.plugins.doctor.scan import SPLITS, Scan

# Minimum distance of an outlier from the mean, in standard deviations. One in five
# hundred million normally distributed values is an outlier.
FAR = 6.0
# Regression losses that grow linearly with the error.
ROBUST = ("huber", "l1", "quantiles")


def check_numbers(scan: Scan, train: Source, config: Config) -> list[Finding]:
    """Report outliers in numeric target columns, except columns of labels.

    Args:
      scan: Scan of the data set.
      train: Training split, with the store of all examples.
      config: Config of the run.
    """
    targets = targets_of(train.store, scan.index)
    if NAMES not in train.facts or targets is None:
        return []
    targets = original(targets, train.facts)
    # Large float64 values, such as timestamps, may have the same first six digits.
    digits = 12 if targets.dtype == np.float64 else 6
    found: list[Finding] = []
    robust = config.task.arguments().get("loss") in ROBUST
    hint = "" if robust else f"Losses that are robust to outliers: {', '.join(ROBUST)}."
    training = scan.split == SPLITS.index("train")
    for name, column in zip(train.facts[NAMES], targets.T, strict=True):
        known = np.isfinite(column)
        some = column[known & training].astype(np.float64)
        # Skip labels (binary, or -1, 0 and 1): rare labels would be outliers.
        if len(np.unique(some)) <= 2 or np.isin(some, (-1, 0, 1)).all():
            continue
        far = known & (np.abs(column - some.mean()) > FAR * some.std())
        rows = np.flatnonzero(far).tolist()
        title = f"{{}} with an outlier in the column {name!r}"
        details = {row: f"{name} {column[row]:.{digits}g}" for row in rows}
        found += of_rows("numbers_far", "warning", title, rows, details, hint=hint)
    return found
