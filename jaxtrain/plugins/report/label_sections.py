"""Report section of multi-label classification."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

from jaxtrain.json_files import typed
from jaxtrain.plugins.report.pages.templates import render

# Maximum number of labels to show: those with the lowest average precision.
MAX_LABELS = 60
# Metrics per label, in column order.
COLUMNS = ("positives", "average_precision", "auroc", "f1", "thresholds")


class LabelRow(NamedTuple):
    """Name and metrics of a label; unknown or undefined metrics are None."""

    name: str
    positives: float | None
    average_precision: float | None
    auroc: float | None
    f1: float | None
    threshold: float | None


def label_sections(values: dict[str, Any], names: Sequence[str]) -> Markup:
    """Render a table of metrics per label, in order of average precision.

    Args:
      values: Recorded metrics by name. If one of `COLUMNS` is missing or invalid,
        the table is omitted.
      names: Names of the labels.
    """
    columns = [typed.fitting(values.get(n), list[float | None]) for n in COLUMNS]
    rows: list[LabelRow] = []
    if names and all(column and len(column) == len(names) for column in columns):
        cells = zip(names, *(column or [] for column in columns), strict=True)
        rows = [LabelRow(*row) for row in cells]
    rows.sort(key=lambda row: (row.average_precision is None, row.average_precision))
    left_out = max(0, len(rows) - MAX_LABELS)
    page = "plugins/report/label_sections.html.j2"
    shown = rows[:MAX_LABELS]
    return Markup(render(page, rows=shown, left_out=left_out).decode())
