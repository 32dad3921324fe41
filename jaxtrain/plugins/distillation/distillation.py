"""Knowledge distillation: training on teacher outputs in addition to labels.

Hinton et al. 2015, arXiv:1503.02531; Touvron et al. 2021, arXiv:2012.12877 (hard).
"""

import copy
import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax

from jaxtrain.data.batch import Batch
from jaxtrain.errors import UserError
from jaxtrain.models.auxiliary import main_outputs
from jaxtrain.plugins.distillation.imitations import find_imitation
from jaxtrain.plugins.distillation.options import DistillationConfig
from jaxtrain.plugins.distillation.teacher import CachedTeacherOutputs, Teacher
from jaxtrain.plugins.distillation.teacher_method import TeacherMethod
from jaxtrain.tasks.base import Task, defines
from jaxtrain.tasks.training_losses import losses_and_metrics
from jaxtrain.training.methods.base import Gradients, Metrics, Objective
from jaxtrain.training.methods.plain import Plain

# Default weights of the soft distillation loss (Tian et al. 2020, arXiv:1910.10699) and
# of the hard distillation loss (Touvron et al. 2021).
WEIGHT, HARD_WEIGHT = 0.9, 0.5


class Distillation(TeacherMethod, Plain):
    """Training method: (1 - weight) * task loss + weight * distillation loss.

    Teacher and student get the same augmented and mixed images (Beyer et al. 2022,
    arXiv:2106.05237). The distillation loss depends on the task.
    """

    Options = DistillationConfig
    caches_teacher = True
    _teacher: Teacher | CachedTeacherOutputs | None = None
    _imitation: Callable[[Any, Any], jax.Array] | None = None

    def __init__(self, **given: Any):
        options = DistillationConfig(**given)
        if not options.teacher:
            raise UserError(
                f"method.teacher = {options.teacher!r}: expected the weights of a "
                "trained model, such as the directory of a run"
            )
        self.teacher, self.teacher_digest = options.teacher, options.teacher_digest
        self.teacher_precision = options.teacher_precision
        default = HARD_WEIGHT if options.hard else WEIGHT
        self._share = default if options.weight is None else options.weight
        self._how = {"temperature": options.temperature, "hard": options.hard}

    def check(self, task: Task, name: str) -> None:
        method = f"method = 'distillation' with task = {name!r}"
        if find_imitation(task) is None:
            raise UserError(
                f"{method}: the task has no distillation loss; use classification, "
                "multilabel, segmentation or regression, or define `imitation` in the "
                "task (docs/distillation.md)"
            )
        if defines(task, "objective"):
            raise UserError(
                f"{method}: the task defines its own training objective, which "
                "distillation would replace; leave method out"
            )

    def with_teacher(
        self, teacher: Teacher | CachedTeacherOutputs, task: Task, outputs: Any
    ) -> "Distillation":
        imitation = find_imitation(task)
        assert imitation is not None, "a run has called `check`"
        method = copy.copy(self)
        method._teacher = teacher
        method._imitation = partial(imitation, **self._how)
        jax.eval_shape(method._imitation, outputs, outputs)
        return method

    def gradients(self, objective: Objective, params: Any, *given: Any) -> Gradients:
        assert self._teacher is not None, "a run has called `with_teacher`"
        assert self._imitation is not None
        imitation = self._imitation
        (_, batch, _), task = given, objective.task
        images = batch["image"]
        target = self._teacher.ask(
            objective.method_arrays, batch, objective.normalization
        )

        def losses(
            params: Any, model_state: Any, batch: Batch, key: jax.Array
        ) -> tuple[jax.Array, Metrics, Any]:
            outputs, model_state = objective.forward(params, model_state, images, key)
            label, metrics = losses_and_metrics(task, outputs, task.target(batch))
            teacher = imitation(main_outputs(outputs), target)
            metrics |= {"label_loss": label.mean(), "teacher_loss": teacher.mean()}
            total = (1 - self._share) * label + self._share * teacher
            return total, metrics, model_state

        lowered = dataclasses.replace(objective, losses=losses)
        return super().gradients(lowered, params, *given)
