"""Distillation loss of each task: its attribute `imitation`, or a built-in default."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

import jax

from jaxtrain.errors import UserError
from jaxtrain.plugins.distillation.imitation import (
    imitate_classes,
    imitate_labels,
    imitate_numbers,
)
from jaxtrain.tasks.base import Task
from jaxtrain.tasks.classification import Classification
from jaxtrain.tasks.multilabel import Multilabel
from jaxtrain.tasks.regression import Regression


class Imitation(Protocol):
    """Protocol of a distillation loss, which a task may define as `imitation`."""

    def __call__(
        self, outputs: Any, teacher: Any, *, temperature: float | None, hard: bool
    ) -> jax.Array:
        """Compute the loss of each example, (B,), non-negative, in at least float32.

        Args:
          outputs: Outputs of the student, with the shapes of `output_spec`.
          teacher: Outputs of the teacher for the same images, of the same shapes.
          temperature: Divisor of the logits; None means the default of the task.
          hard: Whether the targets are hard labels instead of teacher probabilities.

        Raises:
          UserError: The task does not support an option.
        """
        ...


def find_imitation(task: Task) -> Imitation | None:
    """Return the distillation loss of a task, or None."""
    custom = getattr(task, "imitation", None)
    if custom is not None:
        return custom
    for kind in type(task).__mro__:
        if kind in IMITATIONS:
            return partial(IMITATIONS[kind], task)
    return None


def teacher_options(task: Task) -> tuple[str, ...]:
    """Return the names of task options that must be equal for teacher and student.

    These options define the meaning of the outputs. A task may declare them in an
    attribute `teacher_options`.
    """
    default = ("mean", "std") if isinstance(task, Regression) else ()
    return getattr(task, "teacher_options", default)


def _of_classes(
    task: Task, outputs: Any, teacher: Any, *, temperature: float | None, hard: bool
) -> jax.Array:
    del task
    return imitate_classes(outputs, teacher, temperature, hard)


def _of_labels(
    task: Task, outputs: Any, teacher: Any, *, temperature: float | None, hard: bool
) -> jax.Array:
    del task
    return imitate_labels(outputs, teacher, temperature, hard)


def _of_numbers(
    task: Regression,
    outputs: Any,
    teacher: Any,
    *,
    temperature: float | None,
    hard: bool,
) -> jax.Array:
    if temperature is not None or hard:
        raise UserError(
            f"method.temperature = {temperature} and method.hard = {hard} have no "
            "effect on task = 'regression', which predicts numbers, not logits: leave "
            "both options out"
        )
    if not task.has_point_outputs:
        raise UserError(
            "method = 'distillation' with task = 'regression' requires one output per "
            "target: set task.loss to mse, l1 or huber for the teacher and for this run"
        )
    return imitate_numbers(outputs, teacher)


IMITATIONS: Mapping[type, Callable[..., jax.Array]] = {
    Classification: _of_classes,
    Multilabel: _of_labels,
    Regression: _of_numbers,
}
