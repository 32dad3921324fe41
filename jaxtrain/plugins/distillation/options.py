"""Options of distillation: `train.method_options`."""

from dataclasses import dataclass

from jaxtrain.config.base import Section, report
from jaxtrain.config.metadata import field


@dataclass(frozen=True, kw_only=True)
class DistillationOptions(Section):
    """Options of the method `distillation`."""

    teacher: str | None = field(
        None,
        help="The teacher: all that model.pretrained reads, such as the folder of a "
        "run.",
    )
    teacher_digest: str | None = field(
        None,
        help="SHA-256 of its file, or its first digits, which must be so; a run fills "
        "it in.",
    )
    teacher_precision: str | None = field(
        None,
        help="Number formats that the teacher computes in, as precision; None: its "
        "own.",
    )
    weight: float | None = field(
        None,
        help="Share of the teacher in the loss, the labels having the rest; None: "
        "0.9, hard 0.5.",
    )
    temperature: float | None = field(
        None,
        help="What the logits of both are divided by; None: 4.",
    )
    hard: bool = field(
        False,
        help="Whether the teacher's answers count, and not its probabilities (DeiT, "
        "Touvron et al. 2021).",
    )

    def validate(self) -> None:
        self._digest("teacher_digest")
        self._share("weight")
        self._positive("temperature")
        if self.hard and self.temperature is not None:
            report(
                f"temperature = {self.temperature} has no effect on hard = True: the "
                "teacher's answers have none; leave one of them out",
                "temperature",
            )
