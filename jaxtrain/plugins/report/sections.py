"""Sections of the page of a run on the metrics of its task."""

from collections.abc import Callable, Sequence
from typing import Any

from markupsafe import Markup

from jaxtrain.plugin import Table
from jaxtrain.plugins.report.class_sections import class_sections

# Task -> function of metrics of the test split, read from records (of any form, or
# missing), and of the names of classes or columns, empty if there are none. It returns
# HTML.
REPORT_SECTIONS: Table[Callable[[dict[str, Any], Sequence[str]], Markup]] = Table(
    "report_sections", {}
)


def task_sections(task: str, values: dict[str, Any], names: Sequence[str]) -> Markup:
    """Return the sections of a task, as HTML; of a task without a row, on classes.

    Args:
      task: Name of the task.
      values: Metrics by name, read from records.
      names: Names of the classes, or of the columns; empty if there are none.
    """
    return REPORT_SECTIONS.get(task, class_sections)(values, names)
