"""Base class of training methods with a teacher."""

import copy
from collections.abc import Mapping
from typing import Any

from jaxtrain.errors import UserError
from jaxtrain.plugins.distillation.teacher import CachedTeacherOutputs, Teacher
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
    """Training method with a teacher model.

    Attributes:
      teacher: Spec of the teacher's weights, as in `model.pretrained`; None disables
        the teacher.
      teacher_digest: Required prefix of the weights' digest; None accepts any weights.
        Runs record the full digest.
      teacher_precision: Precision policy of the teacher; None means the policy that it
        was trained with.
      caches_teacher: Whether teacher outputs may be cached (`CachedTeacherOutputs`) if
        the images are the same in every epoch.
      trained: Weights of the teacher, which `open` sets.
    """

    teacher: str | None = None
    teacher_digest: str | None = None
    teacher_precision: str | None = None
    caches_teacher: bool = False
    trained: Weights | None = None

    def with_teacher(
        self, teacher: Teacher | CachedTeacherOutputs, task: Task, outputs: Any
    ) -> "TeacherMethod":
        """Return a copy of this method that uses the teacher.

        In a step, `objective.method_arrays` has the teacher's weights, or its cached
        outputs.

        Args:
          teacher: Teacher of the run.
          task: Task of the run.
          outputs: Abstract teacher outputs for a micro-batch, with the shapes of the
            student's outputs.

        Raises:
          UserError: The task does not support an option.
        """
        raise NotImplementedError

    def open(
        self, options: Mapping[str, Any], begun: Mapping[str, Any]
    ) -> tuple[Method, dict[str, Any]]:
        if self.teacher is None:
            return self, {**options}
        field = "method.teacher"
        trained = load_named(self.teacher, field, self.teacher_digest)
        found = trained.digest()
        recorded = begun.get("teacher_digest", found)
        if begun.get("teacher") == self.teacher and recorded != found:
            raise UserError(
                f"{field} = {self.teacher!r} has changed since the run started: the "
                f"sha256 was {str(recorded)[:NUM_SHOWN]}, but {trained.where} has "
                f"{found[:NUM_SHOWN]}; restore the file, or start a new run with "
                "--fresh or another --workdir"
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
        teacher = planned.teacher if planned.cached is None else CachedTeacherOutputs()
        return self.with_teacher(teacher, context.task, outputs), planned
