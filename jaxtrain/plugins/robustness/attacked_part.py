"""`main.py evaluate --attack`: metrics on attacked images."""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, Self

from jaxtrain.config.metadata import field
from jaxtrain.errors import UserError
from jaxtrain.tools.evaluation.parts import (
    Evaluated,
    EvaluationPart,
    check_takes_images,
    with_interval,
)

if TYPE_CHECKING:
    from jaxtrain.plugins.robustness.attacked import ThreatModel
    from jaxtrain.tools.evaluation.passes import Subject

AttackName = Literal["fgsm", "pgd", "apgd-ce", "apgd-t", "apgd"]
# `apgd` stands for both Auto-PGD attacks.
APGD, BOTH = "apgd", ("apgd-ce", "apgd-t")


@dataclass(frozen=True, kw_only=True)
class AttackArguments:
    """Options of `evaluate` for adversarial attacks."""

    attack: tuple[AttackName, ...] = field(
        (),
        help="Adversarial attacks to evaluate with: fgsm (one step), pgd (several "
        "steps), apgd-ce or apgd-t (Auto-PGD), or apgd (apgd-ce and apgd-t). With "
        "several attacks, the worst result of each image counts.",
    )
    epsilon: str | None = field(
        None,
        help="With --attack: maximum norm of the perturbation, for pixel values in "
        "0..1, such as 8/255.",
    )
    norm: Literal["linf", "l2"] | None = field(
        None,
        help="With --attack: norm of the perturbation; None: linf.",
    )
    steps: int | None = field(
        None,
        help="With --attack: number of steps of each attack except fgsm; None: 10 for "
        "pgd, 100 for Auto-PGD.",
    )


class Attacked(EvaluationPart):
    """Metrics of a split on adversarial examples."""

    Options = AttackArguments

    def __init__(self, options: AttackArguments, epsilon: float):
        self._options, self._epsilon = options, epsilon

    @classmethod
    def requested(cls, arguments: AttackArguments) -> Self | None:
        names, steps = arguments.attack, arguments.steps
        if not names:
            for option in ("epsilon", "norm", "steps"):
                value = getattr(arguments, option)
                if value is not None:
                    raise UserError(
                        f"--{option} {value} has no effect without --attack: add an "
                        f"attack, such as --attack pgd, or leave --{option} out"
                    )
            return None
        if arguments.epsilon is None:
            raise UserError(
                f"--attack {names[0]} requires --epsilon: add a value, such as "
                "--epsilon 8/255"
            )
        if set(names) == {"fgsm"} and steps is not None:
            raise UserError(
                f"--steps {steps} has no effect with --attack fgsm, which has one "
                "step: leave --steps out"
            )
        if steps is not None and steps < 1:
            raise UserError(f"--steps {steps}: expected 1 or more")
        return cls(arguments, _epsilon(arguments.epsilon, arguments.norm))

    @property
    def threat(self) -> "ThreatModel":
        """Threat model with the requested attacks, without duplicates."""
        from jaxtrain.plugins.adversarial.attacks import Ball
        from jaxtrain.plugins.robustness.attacked import ThreatModel

        named = [BOTH if name == APGD else (name,) for name in self._options.attack]
        return ThreatModel(
            attacks=tuple(dict.fromkeys(name for group in named for name in group)),
            ball=Ball(epsilon=self._epsilon, norm=self._options.norm or "linf"),
            steps=self._options.steps,
        )

    def check(self, subject: "Subject", tta: str | None) -> None:
        threat = self.threat
        check_takes_images(f"--attack {threat.attacks[0]}", subject)
        threat.check(subject.task, subject.model.description.task)

    def measure(self, evaluated: Evaluated) -> dict[str, Any]:
        import numpy as np

        from jaxtrain.console import progress
        from jaxtrain.evaluation.resampling import SEED
        from jaxtrain.plugins.robustness.attacked import FOOLED_BY, Attacker
        from jaxtrain.tasks.task_metrics import main_goal
        from jaxtrain.tools.evaluation.passes import Pass

        subject, threat, view = evaluated.subject, self.threat, evaluated.evaluate.view
        one = Pass(
            subject=subject,
            view=view,
            change=Attacker(subject.model, subject.task, view, threat),
            keep=lambda outputs, batch: {FOOLED_BY: batch[FOOLED_BY]},
            with_intervals=True,
        )
        source, split = evaluated.source, evaluated.split
        with progress("attacking", len(source)) as advance:
            attacked = one(source, split, advance).checked(split)
        metric = main_goal(subject.task).metric
        by = attacked.kept.values[FOOLED_BY]

        def accuracy_after(number: int) -> float | None:
            """Return the accuracy after the first `number` attacks."""
            if not subject.task.one_class_an_image:
                return None
            return float(np.mean(by > number))

        return {
            "attacks": [
                {
                    "name": name,
                    "steps": threat.steps_of(name),
                    "robust_accuracy": accuracy_after(number),
                }
                for number, name in enumerate(threat.attacks, 1)
            ],
            "norm": threat.ball.norm,
            "epsilon": threat.ball.epsilon,
            "seed": SEED,
            "metric": metric,
            metric: attacked.values[metric],
            # None for metrics without a confidence interval.
            f"{metric}_interval": attacked.intervals.get(metric),
            "loss": attacked.values["loss"],
            f"clean_{metric}": evaluated.result.values[metric],
        }

    @staticmethod
    def describe(result: dict[str, Any]) -> dict[str, str]:
        names = ", ".join(attack["name"] for attack in result["attacks"])
        kind = f"{names}, {result['norm']} {result['epsilon']:.4g}"
        name = result["metric"]
        if not isinstance(value := result[name], int | float):
            return {}
        interval = result[f"{name}_interval"]
        return {f"{name} under {kind}": with_interval(value, interval)}


def _epsilon(text: str, norm: str | None) -> float:
    largest = 1e6 if norm == "l2" else 1.0
    try:
        value = float(Fraction(text))
    except (ValueError, ZeroDivisionError, OverflowError):
        value = math.nan
    if not 0 < value <= largest:
        raise UserError(
            f"--epsilon {text}: expected a number or fraction above 0, at most "
            f"{largest:g}, for pixel values in 0..1, such as 8/255"
        )
    return value
