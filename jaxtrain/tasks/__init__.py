"""Tasks by name: what is learnt, and how well it was."""

from collections.abc import Mapping
from types import MappingProxyType, SimpleNamespace
from typing import Any

from jaxtrain import own
from jaxtrain.config import TrainConfig
from jaxtrain.errors import UserError
from jaxtrain.registry import call_own, find_row, given_options
from jaxtrain.tasks.base import Task
from jaxtrain.tasks.classification import Classification
from jaxtrain.tasks.metrics import Metric

# What makes the task, of the shape of the images and the facts of the data set.
TASKS: dict[str, type[Task]] = {"classification": Classification}

# What is known of metrics in records: a user's own are not among them.
METRICS = {n: m for row in TASKS.values() for n, m in row.known_metrics().items()}
# Metrics that pages show first, beside the loss.
FIRST = tuple(dict.fromkeys(name for row in TASKS.values() for name in row.shown))
# Metric -> which of two values is better.
BETTER = {"loss": "lower", **{n: metric.better for n, metric in METRICS.items()}}

# What records hold beside metrics of the user's own.
RESERVED = ("loss", "num_examples", "kind", "step", "epoch", "time", "split", "event")


def kind(name: str) -> type[Task]:
    """Return the class of a task, to read records; a user's own is not imported."""
    return TASKS.get(name, Task)


def title(metric: str) -> str:
    """Return what pages call a metric, or another number of a run."""
    known = METRICS.get(metric)
    return (known and known.title) or metric.replace("_", " ")


def says_something(metric: str, num_classes: int | None) -> bool:
    """Whether a metric is worth showing of so many classes; None: there are none."""
    known = METRICS.get(metric)
    return known is None or num_classes is None or num_classes >= known.min_classes


def build(
    name: str,
    image_shape: tuple[int, int, int],
    facts: Mapping[str, Any],
    config: TrainConfig,
    own_options: Mapping[str, Any] = MappingProxyType({}),
) -> Task:
    """Return the task of a name, or the user's own, with the options that are set.

    Args:
      name: Name or place of the task, as `task` of a config.
      image_shape: Height, width and channels of the images.
      facts: What the data set says of itself (`Store.facts`).
      config: Section with the options of the tasks of the table.
      own_options: Options of a task of the user's own, as `task_options` of a config.

    Raises:
      UserError: the name is not known, an option has no effect on the task, the data
        set does not fit it, or the user's own is no task.
    """
    make = find_row(TASKS, "task", name)
    # None is what every task has without saying so.
    options = SimpleNamespace(
        label_smoothing=config.label_smoothing or None,
        class_weights=config.class_weights,
        loss=None if config.loss == "cross_entropy" else config.loss,
        target_threshold=config.target_threshold,
    )
    takes = () if own.is_own(name) else tuple(vars(options))
    given = given_options(options, "train", vars(options), name, takes)
    if own_options and not own.is_own(name):
        raise UserError(
            f"task_options = {dict(own_options)!r} is for a task of your own; {name} "
            f"has {', '.join(f'train.{option}' for option in takes)}"
        )
    task = call_own("task", name, make, image_shape, facts, **given, **own_options)
    if not isinstance(task, Task):
        raise UserError(
            f"task = {name!r} makes {task!r}, which is no jaxtrain.tasks.base.Task"
        )
    if not isinstance(getattr(task, "num_outputs", None), int):
        raise UserError(f"task = {name!r} does not set num_outputs, a number")
    taken = {*RESERVED, *task.metrics()}
    own_metrics = {}
    for text in config.metrics:
        metric = _own_metric(text)
        if _name(text) in taken:
            raise UserError(
                f"train.metrics = {text!r}: {_name(text)} is something else in the "
                "records already; give it another name"
            )
        taken.add(_name(text))
        own_metrics[_name(text)] = metric
    task.own_metrics = own_metrics
    return task


def _name(reference: str) -> str:
    return reference.rpartition(":")[2]


def _own_metric(reference: str) -> Metric:
    if not own.is_own(reference):
        raise UserError(f"train.metrics = {reference!r}: expected {own.FORMS}")
    metric = own.load("train.metrics", reference)
    if not isinstance(metric, Metric):
        raise UserError(
            f"train.metrics = {reference!r} is {metric!r}, expected a "
            "jaxtrain.tasks.metrics.Metric"
        )
    return metric
