"""A method that asks a trained model: which one, and how a run hands it over."""

import copy
from collections.abc import Mapping
from typing import Any

from jaxtrain.errors import UserError
from jaxtrain.plugins.distillation.teacher import KeptAnswers, Teacher
from jaxtrain.plugins.distillation.weights import (
    TeacherWeights,
    plan_teacher,
)
from jaxtrain.tasks.base import Task
from jaxtrain.training.methods.base import Method
from jaxtrain.training.methods.inputs import MethodContext
from jaxtrain.weights import NUM_SHOWN
from jaxtrain.weights.resolve import load_named
from jaxtrain.weights.stored import Weights


class TeacherMethod(Method):
    """A method that asks a trained model, its teacher.

    Attributes:
      teacher: Trained model that the method asks, as `model.pretrained` names one, of
        which it is told by `taught_by`; None: it asks none. A run adds its digest to
        the options, as `teacher_digest`.
      teacher_digest: First digits that the digest must have; None: any.
      teacher_precision: Number formats that it computes in; None: its own.
      caches_teacher: Whether the outputs of the teacher may be computed once
        (`KeptAnswers`) where images stay the same: the method asks of no others.
      trained: Weights of the teacher, once `open` has found them.
    """

    teacher: str | None = None
    teacher_digest: str | None = None
    teacher_precision: str | None = None
    caches_teacher: bool = False
    trained: Weights | None = None

    def taught_by(
        self, teacher: Teacher | KeptAnswers, task: Task, outputs: Any
    ) -> "TeacherMethod":
        """Return the method with its teacher.

        What this is asked with, weights or kept outputs, `objective.beside` has.

        Args:
          teacher: Teacher of the run.
          task: Task of the run.
          outputs: Outputs of the teacher for a micro-batch, abstract, of the shapes of
            the model's.

        Raises:
          UserError: An option has no meaning for the task.
        """
        raise NotImplementedError

    def open(
        self, options: Mapping[str, Any], begun: Mapping[str, Any]
    ) -> tuple[Method, dict[str, Any]]:
        if self.teacher is None:
            return self, {**options}
        field = "train.method_options: teacher"
        trained = load_named(self.teacher, field, self.teacher_digest)
        found = trained.digest()
        taught = begun.get("teacher_digest", found)
        if begun.get("teacher") == self.teacher and taught != found:
            raise UserError(
                f"{field} = {self.teacher!r} has changed since the run began: its "
                f"sha256 was {str(taught)[:NUM_SHOWN]}, and that of {trained.where} is "
                f"{found[:NUM_SHOWN]}; restore it, or begin anew with --fresh or "
                "another --workdir"
            )
        method = copy.copy(self)
        method.trained = trained
        return method, {**options, "teacher_digest": found}

    def plan_inputs(
        self, context: MethodContext
    ) -> tuple[Method, TeacherWeights | None]:
        if self.trained is None:
            return self, None
        planned, outputs = plan_teacher(
            self.trained,
            f"the teacher {self.teacher!r}",
            context,
            precision=self.teacher_precision,
            caches=self.caches_teacher,
        )
        teacher = planned.asked if planned.answers is None else KeptAnswers()
        return self.taught_by(teacher, context.task, outputs), planned
