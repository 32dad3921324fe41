"""Report sections of classification: confusion matrix, and metrics per class."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup

from jaxtrain.json_files import typed
from jaxtrain.plugins.report.pages.confusion import confusion
from jaxtrain.plugins.report.pages.templates import render

# Above this number of classes, the table shows only the classes with the lowest and the
# highest recall.
MAX_CLASSES = 60
NUM_WORST, NUM_BEST = 20, 10


def class_sections(values: dict[str, Any], names: Sequence[str]) -> Markup:
    """Render the class table and the confusion matrix of an evaluation, if recorded.

    Args:
      values: Recorded metrics by name; custom metrics may have values of other types.
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
    """Metrics of a class; None if unknown or if the class has no examples."""

    name: str
    num: int | None
    recall: float | None
    precision: float | None
    f1: float | None


class ClassTable(NamedTuple):
    """Rows of the class table, and a note on the order and selection of the rows."""

    note: str
    rows: list[ClassRow]


def _table(
    values: dict[str, Any], names: Sequence[str], matrix: list[list[int]] | None
) -> ClassTable | None:
    """Build the class table, lowest recall first; None if metrics are missing."""
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
    note = "Metrics per class on the test split, lowest recall first."
    if len(names) > MAX_CLASSES:
        rated = [i for i in order if recall[i] is not None]
        order = rated[:NUM_WORST] + rated[NUM_WORST:][-NUM_BEST:]
        note = (
            f"Metrics on the test split for {NUM_WORST} classes with the lowest recall "
            f"and {NUM_BEST} with the highest; summary.json has all {len(names):,}."
        )
    return ClassTable(note, [rows[i] for i in order])


def _matrix(values: dict[str, Any], names: Sequence[str]) -> list[list[int]] | None:
    """Confusion matrix of an evaluation; None if not recorded."""
    matrix = typed.fitting(values.get("confusion_matrix"), list[list[int]])
    sizes = [len(row) for row in matrix or ()]
    return matrix if sizes == [len(names)] * len(names) else None


def _f1(recall: float | None, precision: float | None) -> float | None:
    """Return the F1 score: 0 without true positives, None without examples."""
    if recall is None:
        return None
    if not recall or not precision or recall + precision <= 0:
        return 0.0
    return 2 * recall * precision / (recall + precision)
