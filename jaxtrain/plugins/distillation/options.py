"""Options of the distillation method."""

from dataclasses import dataclass

from jaxtrain.config.base import report
from jaxtrain.config.metadata import field
from jaxtrain.config.part import Part


@dataclass(frozen=True, kw_only=True)
class DistillationConfig(Part):
    """Knowledge distillation (Hinton et al. 2015)."""

    name: str = field("distillation", init=False)
    teacher: str | None = field(
        None,
        help="The teacher, in any form that model.pretrained supports, such as the "
        "directory of a run.",
    )
    teacher_digest: str | None = field(
        None,
        help="Expected SHA-256 of the teacher's weights, or a prefix of it. Runs "
        "record the full digest.",
    )
    teacher_precision: str | None = field(
        None,
        help="Precision policy of the teacher, such as bf16; None: the policy "
        "of the teacher's training.",
    )
    weight: float | None = field(
        None,
        help="Weight of the distillation loss; the weight of the task loss is 1 - "
        "method.weight. None: 0.9, or 0.5 with method.hard = True.",
    )
    temperature: float | None = field(
        None,
        help="Temperature, by which the logits of the teacher and the student are "
        "divided; None: 4.",
    )
    hard: bool = field(
        False,
        help="Whether to use the teacher's predicted classes instead of its "
        "probabilities (DeiT, Touvron et al. 2021).",
    )

    def validate(self) -> None:
        self._digest("teacher_digest")
        self._share("weight")
        self._positive("temperature")
        if self.hard and self.temperature is not None:
            report(
                f"method.temperature = {self.temperature} has no effect with "
                "method.hard = True, which uses predicted classes: leave one of the "
                "two options out",
                "temperature",
            )
