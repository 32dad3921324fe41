"""Report section of detection: average precision per class."""

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from jaxtrain.json_files import typed
from jaxtrain.plugins.detection.box_metrics import BOXES_OF_CLASSES, OF_CLASSES
from jaxtrain.plugins.report.pages.templates import render

# Maximum number of classes in the table; the classes with the lowest AP are shown.
MAX_CLASSES = 100


def box_sections(values: dict[str, Any], names: Sequence[str]) -> Markup:
    """Return the table of classes, lowest average precision first.

    Args:
      values: Metric -> recorded value; invalid or missing metrics are skipped.
      names: Names of the classes.
    """
    precision = typed.fitting(values.get(OF_CLASSES), list[float | None]) or []
    counts = typed.fitting(values.get(BOXES_OF_CLASSES), list[int]) or []
    # `names` may be longer, because metrics end at the last class with a box.
    rows = list(zip(names, precision, counts, strict=False))
    rows.sort(key=lambda row: (row[1] is None, row[1] or 0))
    shown, left_out = rows[:MAX_CLASSES], max(0, len(rows) - MAX_CLASSES)
    page = "plugins/detection/box_sections.html.j2"
    return Markup(render(page, rows=shown, left_out=left_out).decode())
