"""Tasks by name: what is learnt, and how well it was."""

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from jaxtrain import own
from jaxtrain.plugin import Table

if TYPE_CHECKING:
    import numpy as np

    from jaxtrain.tasks.base import Task
    from jaxtrain.tasks.metrics import Metric

# Each is made of the shape of the images, the facts of the data set, and options.
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
    """Metrics of all tasks, by name, without those of the user's own."""
    return {n: m for row in TASKS.values() for n, m in row.known_metrics.items()}


@functools.cache
def first_metrics() -> tuple[str, ...]:
    """Metrics that pages show first, beside the loss."""
    return tuple(dict.fromkeys(name for row in TASKS.values() for name in row.shown))


def better(metric: str) -> str | None:
    """Return which of two values is better, "higher" or "lower"; None: neither."""
    if metric == "loss":
        return "lower"
    known = known_metrics().get(metric)
    return known and known.better


def kind(name: str) -> "type[Task]":
    """Return the class of a task, to read its records and outputs.

    A user's own is imported where it is allowed (`--trust`); else it is `Task` itself.
    """
    from jaxtrain.tasks.base import Task

    if own.is_own(name) and own.is_allowed(name):
        return own.load("task", name)
    return TASKS.get(name, Task)


def suitable(facts: Mapping[str, Any], groups: "np.ndarray") -> str | None:
    """Return the name of a task that a data set suits; None: of none here.

    Args:
      facts: What the data set says of itself (`Store.facts`).
      groups: Groups of the training examples (`Store.strata`).
    """
    from jaxtrain.tasks.proposals import Proposable

    for name, row in TASKS.items():
        if isinstance(row, Proposable) and row.suits(facts, groups):
            return name
    return None


def title(metric: str) -> str:
    """Return what pages call a metric, or another number of a run."""
    known = known_metrics().get(metric)
    return (known and known.title) or metric.replace("_", " ")
