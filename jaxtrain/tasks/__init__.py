"""Registry of tasks, and of the metrics of all tasks."""

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from jaxtrain import own
from jaxtrain.plugin import Table

if TYPE_CHECKING:
    import numpy as np

    from jaxtrain.tasks.base import Task
    from jaxtrain.tasks.metrics import Metric

# Constructors take the image shape, the data set metadata, and the task options.
TASKS: "Table[type[Task]]" = Table(
    "tasks",
    {
        "classification": "jaxtrain.tasks.classification:Classification",
        "regression": "jaxtrain.tasks.regression:Regression",
        "multilabel": "jaxtrain.tasks.multilabel:Multilabel",
    },
)


@functools.cache
def known_metrics() -> "dict[str, Metric]":
    """Metrics of all tasks by name, without custom metrics."""
    return {n: m for row in TASKS.values() for n, m in row.known_metrics.items()}


@functools.cache
def first_metrics() -> tuple[str, ...]:
    """Names of the metrics that reports show first, after the loss."""
    return tuple(dict.fromkeys(name for row in TASKS.values() for name in row.shown))


def better(metric: str) -> str | None:
    """Whether "higher" or "lower" values of a metric are better; None if neither."""
    if metric == "loss":
        return "lower"
    known = known_metrics().get(metric)
    return known and known.better


def kind(name: str) -> "type[Task]":
    """Return the class of a task by name, to read records and outputs of a run.

    A custom task is imported only if trusted (`--trust`); otherwise returns `Task`.
    """
    from jaxtrain.tasks.base import Task

    if own.is_own(name) and own.is_allowed(name):
        return own.load("task", name)
    return TASKS.get(name, Task)


def suitable(facts: Mapping[str, Any], groups: "np.ndarray") -> str | None:
    """Name of the first task that suits a data set, or None.

    Args:
      facts: Metadata of the data set (`Store.facts`).
      groups: Strata of the training examples, usually classes (`Store.strata`).
    """
    from jaxtrain.tasks.proposals import Proposable

    for name, row in TASKS.items():
        if isinstance(row, Proposable) and row.suits(facts, groups):
            return name
    return None


def title(metric: str) -> str:
    """Report title of a metric, or of another recorded value."""
    known = known_metrics().get(metric)
    return (known and known.title) or metric.replace("_", " ")
