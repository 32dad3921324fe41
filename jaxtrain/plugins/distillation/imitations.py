"""Imitation by task: that of the task itself, or of the class of the core's tasks."""

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
    """Distance of outputs from a teacher's, which a task may have as `imitation`."""

    def __call__(
        self, outputs: Any, teacher: Any, *, temperature: float | None, hard: bool
    ) -> jax.Array:
        """Return the distance of each example, (B,), 0 or more, in at least float32.

        Args:
          outputs: Outputs of the model, of the shapes of `output_spec`.
          teacher: Outputs of the teacher for the same images, of the same shapes.
          temperature: Divisor of the logits; None means the task's default.
          hard: Whether the teacher's answers count, and not its probabilities.

        Raises:
          UserError: An option has no meaning for the task.
        """
        ...


def find_imitation(task: Task) -> Imitation | None:
    """Return the imitation of a task; None: it cannot be distilled."""
    own = getattr(task, "imitation", None)
    if own is not None:
        return own
    for kind in type(task).__mro__:
        if kind in IMITATIONS:
            return partial(IMITATIONS[kind], task)
    return None


def teacher_options(task: Task) -> tuple[str, ...]:
    """Return the options of a task that a teacher must share.

    The meaning of the outputs depends on them. A task may have them as
    `teacher_options`.
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
            f"temperature = {temperature} and hard = {hard} have no effect on "
            "task = 'regression', whose outputs are numbers: leave them out"
        )
    if not task.has_point_outputs:
        raise UserError(
            "task = 'regression' with another loss than mse, l1 and huber puts "
            "out more than numbers, of which a difference means nothing: set one "
            "of these for the teacher and for this run"
        )
    return imitate_numbers(outputs, teacher)


IMITATIONS: Mapping[type, Callable[..., jax.Array]] = {
    Classification: _of_classes,
    Multilabel: _of_labels,
    Regression: _of_numbers,
}
