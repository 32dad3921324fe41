"""Training on what a teacher says of the images, beside their labels.

Hinton et al. 2015, arXiv:1503.02531; Touvron et al. 2021, arXiv:2012.12877 (hard).
"""

import copy
import dataclasses
from functools import partial
from typing import Any

import jax

from jaxtrain.config.methods import DistillationOptions
from jaxtrain.data.batch import Batch
from jaxtrain.models.auxiliary import main_outputs
from jaxtrain.tasks.base import Task
from jaxtrain.training.methods.base import Metrics, Objective
from jaxtrain.training.methods.plain import Plain
from jaxtrain.training.teacher import Teacher

# Share of the teacher in the loss: Tian et al. 2020, arXiv:1910.10699, and, of its
# answers alone, Touvron et al. 2021.
WEIGHT, HARD_WEIGHT = 0.9, 0.5


class Distillation(Plain):
    """The gradients of (1 - weight) times the loss and weight times the imitation.

    The teacher sees the same images as the student, augmented and mixed (Beyer et al.
    2022, arXiv:2106.05237). How outputs imitate its own the task says.
    """

    Options = DistillationOptions
    _asked: Teacher | None = None

    def __init__(self, **given: Any):
        options = DistillationOptions(**given)
        self.teacher, self.teacher_digest = options.teacher, options.teacher_digest
        self.teacher_precision = options.teacher_precision
        default = HARD_WEIGHT if options.hard else WEIGHT
        self._weight = default if options.weight is None else options.weight
        self._how = {"temperature": options.temperature, "hard": options.hard}

    def taught_by(self, teacher: Teacher) -> "Distillation":
        method = copy.copy(self)
        method._asked = teacher
        return method

    def check_teacher(self, task: Task, outputs: Any, said: Any) -> None:
        jax.eval_shape(partial(task.imitation, **self._how), outputs, said)

    def gradients(
        self,
        objective: Objective,
        params: Any,
        model_state: Any,
        batch: Batch,
        key: jax.Array,
    ) -> tuple[Any, Any, Metrics]:
        assert self._asked is not None, "a run has called `taught_by`"
        task, share = objective.task, self._weight
        said = self._asked.outputs(
            objective.beside, batch["image"], objective.normalization
        )

        def losses(
            params: Any, model_state: Any, batch: Batch, key: jax.Array
        ) -> tuple[jax.Array, Metrics, Any]:
            outputs, model_state = objective.forward(
                params, model_state, batch["image"], key
            )
            own, metrics = task.losses_and_metrics(outputs, task.target(batch))
            apart = task.imitation(main_outputs(outputs), said, **self._how)
            metrics = {
                **metrics,
                "label_loss": own.mean(),
                "teacher_loss": apart.mean(),
            }
            return (1 - share) * own + share * apart, metrics, model_state

        lowered = dataclasses.replace(objective, losses=losses)
        return super().gradients(lowered, params, model_state, batch, key)
