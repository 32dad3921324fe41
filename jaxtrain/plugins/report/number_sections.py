"""Report section of regression: metrics per target column."""

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from jaxtrain.json_files import typed
from jaxtrain.plugins.report.pages.templates import render
from jaxtrain.tasks.number_metrics import OF_COLUMNS

# Metric -> heading of its table column, in order.
HEADS = {"mae": "MAE", "rmse": "RMSE", "r2": "R²", "coverage": "interval coverage"}


def number_sections(values: dict[str, Any], names: Sequence[str]) -> Markup:
    """Render a table of regression metrics per target column.

    Args:
      values: Recorded metrics by name. Without metrics per column, the table is empty.
      names: Names of the target columns.
    """
    found = {}
    for metric, head in HEADS.items():
        value = values.get(f"{metric}{OF_COLUMNS}")
        column = typed.fitting(value, list[float | None])
        if column is not None and len(column) == len(names):
            found[head] = column
    rows = zip(*found.values(), strict=True)
    return Markup(
        render(
            "plugins/report/number_sections.html.j2",
            heads=list(found),
            rows=list(zip(names, rows, strict=True)) if found else [],
        ).decode()
    )
