"""Sections of a report on classes: what is confused, and the table of each class."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup

from jaxtrain.json_files import typed
from jaxtrain.plugins.report.pages.confusion import confusion
from jaxtrain.plugins.report.pages.templates import render

# Of more classes than this only so many of the worst and of the best are shown.
MAX_CLASSES = 60
NUM_WORST, NUM_BEST = 20, 10


def class_sections(values: dict[str, Any], names: Sequence[str]) -> Markup:
    """Return what the metrics of an evaluation tell of its classes, if they do.

    Args:
      values: Metrics by name; a user's own may have these names, and other values.
      names: Names of the classes.
    """
    matrix = _matrix(values, names)
    return Markup(
        render(
            "plugins/report/class_sections.html.j2",
            confusion=matrix and confusion(np.array(matrix), names),
            classes=_table(values, names, matrix),
        ).decode()
    )


class ClassRow(NamedTuple):
    """What is known of a class; None is not known, or without examples."""

    name: str
    num: int | None
    recall: float | None
    precision: float | None
    f1: float | None


class ClassTable(NamedTuple):
    """The rows of the classes, and which these are."""

    note: str
    rows: list[ClassRow]


def _table(
    values: dict[str, Any], names: Sequence[str], matrix: list[list[int]] | None
) -> ClassTable | None:
    """Return the table, the lowest recall first; None if it is not known."""
    recall = typed.fitting(values.get("recall"), list[float | None])
    precision = typed.fitting(values.get("precision"), list[float | None])
    if recall is None or precision is None:
        return None
    if not len(recall) == len(precision) == len(names):
        return None
    nums = [None] * len(names) if matrix is None else [sum(row) for row in matrix]
    f1 = map(_f1, recall, precision)
    rows = list(map(ClassRow, names, nums, recall, precision, f1))
    order = sorted(range(len(names)), key=lambda i: (recall[i] is None, recall[i], i))
    note = "The test split, the class with the lowest recall first."
    if len(names) > MAX_CLASSES:
        rated = [i for i in order if recall[i] is not None]
        order = rated[:NUM_WORST] + rated[NUM_WORST:][-NUM_BEST:]
        note = (
            f"The test split: of {len(names):,} classes the {NUM_WORST} with the "
            f"lowest recall and the {NUM_BEST} with the highest; summary.json has all."
        )
    return ClassTable(note, [rows[i] for i in order])


def _matrix(values: dict[str, Any], names: Sequence[str]) -> list[list[int]] | None:
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
