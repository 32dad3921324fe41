"""Checks of numeric target columns."""

import numpy as np

from jaxtrain.config import Config
from jaxtrain.data.columns import NAMES, original
from jaxtrain.data.image_source import Source
from jaxtrain.errors import counted
from jaxtrain.plugins.doctor.checks import FEW, NUM_NAMED
from jaxtrain.plugins.doctor.report import Finding, Level


def check_columns(train: Source, config: Config) -> list[Finding]:
    """Report target columns with one value, few 1s or missing values in training."""
    targets, names = train.all_targets(), train.facts.get(NAMES)
    if names is None or targets is None:
        return []
    targets, groups, few = original(targets, train.facts), train.strata(), []
    if groups.ndim > 1 and config.task.name != "regression":
        # Unknown labels are -1.
        targets = np.where(targets < 0, np.nan, targets)
    constant, missing = [], []
    for name, column in zip(names, targets.T, strict=True):
        known = column[~np.isnan(column)]
        values = np.unique(known)
        if len(values) < 2:
            told = f"always {values[0]:g}" if len(values) else "always missing"
            constant.append(f"{name} ({told})")
        if len(known) < len(column):
            missing.append(f"{name} ({len(column) - len(known):,})")
    if groups.ndim > 1:
        counts = zip(names, groups.sum(axis=0).tolist(), strict=True)
        few = [f"{name} ({num})" for name, num in counts if 0 < num < FEW]
    return [
        *_report("label_constant", "warning", constant, "with one value in training"),
        *_report("label_few", "warning", few, f"with fewer than {FEW} training images"),
        *_report("label_missing", "note", missing, "with missing values"),
    ]


def _report(kind: str, level: Level, names: list[str], what: str) -> list[Finding]:
    if not names:
        return []
    more = f" and {len(names) - NUM_NAMED} more" if len(names) > NUM_NAMED else ""
    title = f"{counted(len(names), 'target column')} {what}: "
    return [Finding(kind, level, title + ", ".join(names[:NUM_NAMED]) + more)]
