"""Sections of a run's page: the metrics of its task."""

from collections.abc import Callable, Sequence
from typing import Any

from markupsafe import Markup

from jaxtrain.plugin import Table
from jaxtrain.plugins.report.class_sections import class_sections

# Task -> function that renders the test metrics, given the names of classes or columns.
# Metrics may be missing or invalid, and the names may be empty.
REPORT_SECTIONS: Table[Callable[[dict[str, Any], Sequence[str]], Markup]] = Table(
    "report_sections", {}
)


def task_sections(task: str, values: dict[str, Any], names: Sequence[str]) -> Markup:
    """Render the metrics of a task as HTML sections.

    Tasks without an entry in `REPORT_SECTIONS` use `class_sections`.

    Args:
      task: Name of the task.
      values: Recorded metrics by name.
      names: Names of the classes or columns; may be empty.
    """
    return REPORT_SECTIONS.get(task, class_sections)(values, names)
