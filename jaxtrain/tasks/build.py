"""Creation of the task that a config selects, with its custom metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax

from jaxtrain import own
from jaxtrain.config.part import CustomConfig, typed_options
from jaxtrain.errors import UserError
from jaxtrain.problems import Problem, ProblemList
from jaxtrain.registry import check_call, find_row
from jaxtrain.tasks import TASKS
from jaxtrain.tasks.base import Task, defines
from jaxtrain.tasks.metrics import Metric
from jaxtrain.tasks.outputs import is_shape

if TYPE_CHECKING:
    from jaxtrain.config import Config

# Keys of metric records that cannot be names of custom metrics.
RESERVED = ("loss", "num_examples", "kind", "step", "epoch", "time", "split", "event")


def build_task(
    config: Config, image_shape: tuple[int, int, int], facts: Mapping[str, Any]
) -> Task:
    """Create the built-in or custom task that a config selects.

    Args:
      config: Config of a run; only `task` and `train.metrics` are used.
      image_shape: Height, width and channels of the images.
      facts: Metadata of the data set (`Store.facts`).

    Raises:
      UserError: Unknown name or option, unsuitable data set, or a custom object that is
        not a `Task`.
    """
    name, options = config.task.name, config.task.arguments()
    part: Any = find_row(TASKS, "task", name)
    kind = getattr(part, "Options", None)
    if kind is not None and isinstance(config.task, CustomConfig):
        options = vars(typed_options(kind, options, name))
    check_call("task", name, part, image_shape, facts, **options)
    task = part(image_shape, facts, **options)
    if not isinstance(task, Task):
        raise UserError(
            f"task = {name!r} returned {task!r}: return a jaxtrain.tasks.base.Task"
        )
    _check_outputs(task, name)
    _check_changes(task, name)
    task.own_metrics = _own_metrics(config.train.metrics, task)
    return task


def _own_metrics(references: Sequence[str], task: Task) -> dict[str, Metric]:
    """Import custom metrics; return them by name.

    Raises:
      UserError: Invalid metrics; the message lists all problems.
    """
    problems, found = ProblemList(), dict[str, Metric]()
    taken = {*RESERVED, *task.metrics()}
    for text in references:
        metric = problems.build(_own_metric, text)
        if _name(text) in taken:
            problem = Problem(
                f"train.metrics = {text!r}: another metric already has the name "
                f"{_name(text)}; rename the metric",
                ("train.metrics",),
            )
            problems.add([problem])
        taken.add(_name(text))
        if metric is not None:
            found[_name(text)] = metric
    problems.stop()
    return found


def _check_outputs(task: Task, name: str) -> None:
    """Check that a task defines its outputs; set `num_outputs` from `output_spec`."""
    if task.output_spec is not None and not hasattr(task, "num_outputs"):
        shapes = jax.tree.leaves(task.output_spec, is_leaf=is_shape)
        if not all(map(is_shape, shapes)):
            raise UserError(
                f"task = {name!r}: output_spec = {task.output_spec!r}: expected a "
                "shape (a tuple of numbers), or dicts and tuples of shapes"
            )
        task.num_outputs = sum(shape[-1] if shape else 1 for shape in shapes)
    if not isinstance(getattr(task, "num_outputs", None), int):
        raise UserError(
            f"task = {name!r} does not define the model outputs: set num_outputs (an "
            "int) or output_spec"
        )


def _check_changes(task: Task, name: str) -> None:
    """Check that a task defines `transform_target` and `target_changes`, or neither."""
    if defines(task, "transform_target") != bool(task.target_changes):
        raise UserError(
            f"task = {name!r}: target_changes = {task.target_changes}: list the "
            "augmentations that transform_target supports, such as Geometry, or set () "
            "if the task does not define transform_target (docs/tasks.md)"
        )


def _name(reference: str) -> str:
    return reference.rpartition(":")[2]


def _own_metric(reference: str) -> Metric:
    if not own.is_own(reference):
        raise UserError(f"train.metrics = {reference!r}: expected {own.FORMS}")
    metric = own.load("train.metrics", reference)
    if not isinstance(metric, Metric):
        raise UserError(
            f"train.metrics = {reference!r} is {metric!r}: expected a "
            "jaxtrain.tasks.metrics.Metric"
        )
    return metric
