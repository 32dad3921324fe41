"""The table of the classes: of many, the worst and the best."""

from collections.abc import Sequence
from typing import Any

from jaxtrain.json_files import typed
from jaxtrain.pages.page import bar, breakable, section, table
from jaxtrain.report.numbers import share

# Of more classes than this only so many of the worst and of the best are shown.
MAX_CLASSES = 60
NUM_WORST, NUM_BEST = 20, 10


def classes(values: dict[str, Any], names: Sequence[str], split: str) -> str:
    """Return recall, precision and F1 of each class; nothing if they are not known."""
    # A user's own metrics may have these names, and other values.
    recall = typed.fitting(values.get("recall"), list[float | None])
    precision = typed.fitting(values.get("precision"), list[float | None])
    if recall is None or precision is None:
        return ""
    if not len(recall) == len(precision) == len(names):
        return ""
    matrix = counts(values, names)
    nums = [None] * len(names) if matrix is None else [sum(row) for row in matrix]
    order = sorted(range(len(names)), key=lambda i: (recall[i] is None, recall[i], i))
    many = len(names) > MAX_CLASSES
    if many:
        rated = [i for i in order if recall[i] is not None]
        order = rated[:NUM_WORST] + rated[NUM_WORST:][-NUM_BEST:]
    rows = [
        [
            breakable(names[i]),
            "-" if nums[i] is None else f"{nums[i]:,}",
            share(recall[i]),
            share(precision[i]),
            share(_f1(recall[i], precision[i])),
            bar(recall[i] or 0.0),
        ]
        for i in order
    ]
    note = f"The {split} split, the class with the lowest recall first."
    if many:
        note = (
            f"The {split} split: of {len(names):,} classes the {NUM_WORST} with the "
            f"lowest recall and the {NUM_BEST} with the highest; summary.json has all."
        )
    head = ["class", "images", "recall", "precision", "F1", ""]
    return section("Classes", table(head, rows, numbers=(1, 2, 3, 4)), note=note)


def counts(values: dict[str, Any], names: Sequence[str]) -> list[list[int]] | None:
    """Return the confusion matrix of an evaluation; None if it has none."""
    matrix = typed.fitting(values.get("confusion_matrix"), list[list[int]])
    sizes = [len(row) for row in matrix or ()]
    return matrix if sizes == [len(names)] * len(names) else None


def _f1(recall: float | None, precision: float | None) -> float | None:
    """Return the harmonic mean; 0 without a hit, None for a class without examples."""
    if recall is None:
        return None
    if not recall or not precision or recall + precision <= 0:
        return 0.0
    return 2 * recall * precision / (recall + precision)
