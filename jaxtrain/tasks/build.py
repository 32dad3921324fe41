"""A task of a config, with its options and metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax

from jaxtrain import own
from jaxtrain.config.base import Section, typed_options
from jaxtrain.config.classification import ClassificationOptions
from jaxtrain.errors import UserError
from jaxtrain.problems import Problem, ProblemList
from jaxtrain.registry import check_call, find_row
from jaxtrain.tasks import TASKS
from jaxtrain.tasks.base import Task
from jaxtrain.tasks.metrics import Metric
from jaxtrain.tasks.outputs import is_shape

if TYPE_CHECKING:
    from jaxtrain.config import Config

# Keys of records that no metric of the user's own may have.
RESERVED = ("loss", "num_examples", "kind", "step", "epoch", "time", "split", "event")


def build_task(
    config: Config, image_shape: tuple[int, int, int], facts: Mapping[str, Any]
) -> Task:
    """Return the task of a config, or the user's own, with the options that are set.

    Args:
      config: Config of a run: `task`, `task_options`, and the section `train`, which
        has the options of classification, and names metrics of the user's own.
      image_shape: Height, width and channels of the images.
      facts: What the data set says of itself (`Store.facts`).

    Raises:
      UserError: the name is not known, the task does not take an option, the data
        set does not fit it, or the user's own is no task.
    """
    name = config.task
    part: Any = find_row(TASKS, "task", name)
    options = _options(config, getattr(part, "Options", None))
    check_call("task", name, part, image_shape, facts, **options)
    task = part(image_shape, facts, **options)
    if not isinstance(task, Task):
        raise UserError(
            f"task = {name!r} makes {task!r}, which is no jaxtrain.tasks.base.Task"
        )
    _check_outputs(task, name)
    task.own_metrics = _own_metrics(config.train.metrics, task)
    return task


def _own_metrics(references: Sequence[str], task: Task) -> dict[str, Metric]:
    """Return custom metrics by name.

    Raises:
      UserError: All problems of them.
    """
    problems, found = ProblemList(), dict[str, Metric]()
    taken = {*RESERVED, *task.metrics()}
    for text in references:
        metric = problems.build(_own_metric, text)
        if _name(text) in taken:
            problem = Problem(
                f"train.metrics = {text!r}: {_name(text)} is something else in the "
                "records already; give it another name",
                ("train.metrics",),
            )
            problems.add([problem])
        taken.add(_name(text))
        if metric is not None:
            found[_name(text)] = metric
    problems.stop()
    return found


def _options(config: Config, kind: type[Section] | None) -> dict[str, Any]:
    """Return the options of a task: all that it declares; else those that are given.

    Raises:
      UserError: there is one that the task does not declare, or that is given in the
        wrong place.
    """
    given, options = config.train.classification_options, config.task_options
    fields, problems = vars(ClassificationOptions()), ProblemList()
    classifies = kind is not None and issubclass(kind, ClassificationOptions)
    if classifies:
        misplaced = [
            Problem(
                f"task_options: {name} of {config.task} is a field of the section "
                f"train: set train.{name}",
                ("task_options",),
            )
            for name in options
            if name in fields
        ]
        options = {**options, **given}
    else:
        misplaced = [
            Problem(
                f"train.{name} = {value!r} has no effect on {config.task}: it is for "
                "classification, and task_options has the options of other tasks",
                (f"train.{name}",),
            )
            for name, value in given.items()
        ]
    problems.add(misplaced)
    typed = problems.build(typed_options, kind, options, config.task)
    problems.stop()
    return dict(options) if typed is None else vars(typed)


def _check_outputs(task: Task, name: str) -> None:
    """Raise UserError if a task says nothing of its outputs; count their features."""
    if task.output_spec is not None and not hasattr(task, "num_outputs"):
        shapes = jax.tree.leaves(task.output_spec, is_leaf=is_shape)
        if not all(map(is_shape, shapes)):
            raise UserError(
                f"task = {name!r}: output_spec = {task.output_spec!r}: expected a "
                "shape, a tuple of numbers, or dicts and tuples of shapes"
            )
        task.num_outputs = sum(shape[-1] if shape else 1 for shape in shapes)
    if not isinstance(getattr(task, "num_outputs", None), int):
        raise UserError(
            f"task = {name!r} does not set num_outputs, a number, nor output_spec"
        )


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
