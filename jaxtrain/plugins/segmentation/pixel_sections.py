"""Sections of segmentation reports: metrics per class, and confusion matrix."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup

from jaxtrain.json_files import typed
from jaxtrain.plugins.report.pages.confusion import confusion
from jaxtrain.plugins.report.pages.templates import render

# Maximum number of classes in the table, which shows the classes of lowest IoU.
MAX_CLASSES = 60


class PixelClassRow(NamedTuple):
    """Metrics of a class, for a table.

    Attributes:
      name: Name of the class.
      share: Fraction of the valid pixels that belong to the class; None if unknown.
      iou: Intersection over union.
      dice: Dice coefficient.
    """

    name: str
    share: float | None
    iou: float
    dice: float


def pixel_sections(values: dict[str, Any], names: Sequence[str]) -> Markup:
    """Render the confusion matrix and a table of classes in ascending order of IoU.

    Args:
      values: Recorded metrics by name; missing and invalid metrics are not shown.
      names: Names of the classes.
    """
    matrix = typed.fitting(values.get("confusion_matrix"), list[list[int]])
    if matrix is not None and [len(row) for row in matrix] != [len(names)] * len(names):
        matrix = None
    rows = _rows(values, names, matrix)
    page = "plugins/segmentation/pixel_sections.html.j2"
    drawn = None if matrix is None else confusion(np.array(matrix), names)
    left_out = max(0, len(rows) - MAX_CLASSES)
    shown = rows[:MAX_CLASSES]
    return Markup(render(page, rows=shown, left_out=left_out, confusion=drawn).decode())


def _rows(
    values: dict[str, Any], names: Sequence[str], matrix: list[list[int]] | None
) -> list[PixelClassRow]:
    columns = [
        typed.fitting(values.get(n), list[float | None]) for n in ("iou", "dice")
    ]
    if not names or not all(column and len(column) == len(names) for column in columns):
        return []
    shares: list[float | None] = [None] * len(names)
    if matrix is not None:
        total = sum(map(sum, matrix))
        shares = [sum(row) / total if total else None for row in matrix]
    cells = zip(names, shares, *(column or [] for column in columns), strict=True)
    # The IoU is None for the ignored class, and for classes without pixels.
    rows = [
        PixelClassRow(name, share, iou, dice)
        for name, share, iou, dice in cells
        if iou is not None and dice is not None
    ]
    return sorted(rows, key=lambda row: row.iou)
