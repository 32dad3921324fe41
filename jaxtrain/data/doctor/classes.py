"""How many examples each class has, in each split."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxtrain.data.doctor.finding import (
    Finding,
    Level,
    count_classes,
    named,
    of_rows,
)
from jaxtrain.data.doctor.scan import SPLITS, Scan

# With fewer examples than this, a tenth that is held out may have none of a class.
FEW = 10
# Largest class over the smallest: from here on a model does well by guessing.
MAX_RATIO = 10


@dataclass(frozen=True)
class Classes:
    """The readable examples of each class.

    Attributes:
      names: of the classes.
      counts: examples by split and class, (splits, classes).
      bad_rows: rows whose label is no class.
    """

    names: tuple[str, ...]
    counts: np.ndarray
    bad_rows: tuple[int, ...]

    @property
    def in_training(self) -> np.ndarray:
        return self.counts[SPLITS.index("train")]

    def untrained(self) -> list[str]:
        """Name the classes that validation or test have, and training does not."""
        elsewhere = self.counts.sum(axis=0) - self.in_training
        return self._named((self.in_training == 0) & (elsewhere > 0))

    def empty(self) -> list[str]:
        """Name the classes without any example."""
        return self._named(self.counts.sum(axis=0) == 0)

    def few(self) -> list[str]:
        """Name the classes with very few examples in training."""
        return self._named((self.in_training > 0) & (self.in_training < FEW))

    def ratio(self) -> float:
        """Return the size of the largest class in training over that of the least."""
        counts = self.in_training[self.in_training > 0]
        return float(counts.max() / counts.min()) if len(counts) else 1.0

    def _named(self, which: np.ndarray) -> list[str]:
        return [self.names[i] for i in np.flatnonzero(which)]


def count(scan: Scan, facts: Mapping[str, Any]) -> Classes | None:
    """Count the examples of each class; None if the targets are no classes."""
    if scan.labels is None:
        return None
    num = int(facts["num_classes"])
    names = facts.get("class_names")
    names = range(num) if names is None else names
    good = (scan.labels >= 0) & (scan.labels < num)
    counts = np.zeros((len(SPLITS), num), np.int64)
    counted = good & scan.readable
    np.add.at(counts, (scan.split[counted], scan.labels[counted]), 1)
    bad_rows = tuple(np.flatnonzero(~good).tolist())
    return Classes(tuple(map(str, names)), counts, bad_rows)


def check_classes(classes: Classes) -> list[Finding]:
    """Find wrong labels, and classes of unusual sizes."""
    title = f"{{}} whose label is not 0 to {len(classes.names) - 1}"
    found = of_rows("labels_missing", "error", title, classes.bad_rows)
    trained = int((classes.in_training > 0).sum())
    if trained < 2:
        title = f"training has images of {count_classes(trained)}"
        found.append(Finding(kind="one_class", level="error", title=title))
    named_kinds: tuple[tuple[str, Level, list[str], str], ...] = (
        ("class_untrained", "error", classes.untrained(), "that training has not"),
        ("class_empty", "warning", classes.empty(), "without an image"),
        ("class_few", "warning", classes.few(), f"of fewer than {FEW} images to train"),
    )
    for kind, level, names, what in named_kinds:
        if names:
            title = f"{count_classes(len(names))} {what}: {named(names)}"
            found.append(Finding(kind=kind, level=level, title=title))
    if classes.ratio() >= MAX_RATIO:
        title = f"the largest class is {classes.ratio():.3g} times the smallest"
        found.append(Finding(kind="imbalance", level="warning", title=title))
    return found
