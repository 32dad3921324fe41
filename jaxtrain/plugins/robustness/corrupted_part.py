"""`main.py evaluate --corruptions`: error for each corruption and severity."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from jaxtrain.config.metadata import field
from jaxtrain.errors import UserError
from jaxtrain.tools.evaluation.parts import (
    Evaluated,
    EvaluationPart,
    check_takes_images,
)

if TYPE_CHECKING:
    from jaxtrain.plugins.robustness.corruptions.corrupt import Corruption
    from jaxtrain.tools.evaluation.passes import Subject


@dataclass(frozen=True, kw_only=True)
class CorruptionArguments:
    """Options of `evaluate` for image corruptions."""

    corruptions: bool = field(
        False,
        help="Also evaluate the split under 15 corruptions at 5 severities.",
    )
    baseline: Path | None = field(
        None,
        help="With --corruptions: evaluation.json of a baseline model; also report "
        "errors relative to the baseline's.",
    )


class Corrupted(EvaluationPart):
    """Errors on corrupted images, absolute and relative to a baseline model."""

    Options = CorruptionArguments

    def __init__(self, baseline: Path | None):
        self._baseline = baseline

    @classmethod
    def requested(cls, arguments: CorruptionArguments) -> Self | None:
        if arguments.corruptions:
            return cls(arguments.baseline)
        if arguments.baseline is not None:
            raise UserError(
                f"--baseline {arguments.baseline} has no effect without --corruptions: "
                "add --corruptions, or leave --baseline out"
            )
        return None

    def check(self, subject: "Subject", tta: str | None) -> None:
        from jaxtrain.plugins.robustness import corruption_errors
        from jaxtrain.plugins.robustness.corruptions.corrupt import check_shape
        from jaxtrain.plugins.robustness.corruptions.levels import levels
        from jaxtrain.tasks.target_transforms import moves_targets
        from jaxtrain.tasks.task_metrics import main_goal

        check_takes_images("--corruptions", subject)
        check_shape(subject.model.image_shape)
        moves = moves_targets(subject.task)
        if moves and not subject.task.one_class_an_image:
            raise UserError(
                "--corruptions: some corruptions move pixels, but not the targets of "
                f"task = {subject.model.description.task!r}; leave --corruptions out"
            )
        if self._baseline is not None:
            table, _ = levels(*subject.model.image_shape[:2])
            metric = main_goal(subject.task).metric
            corruption_errors.read_baseline(self._baseline, table, metric)

    def check_values(self, subject: "Subject", values: dict[str, Any]) -> None:
        from jaxtrain.plugins.robustness import corruption_errors
        from jaxtrain.tasks.task_metrics import main_goal

        corruption_errors.error(main_goal(subject.task), values)

    def measure(self, evaluated: Evaluated) -> dict[str, Any]:
        import numpy as np

        from jaxtrain.plugins.robustness import corruption_errors
        from jaxtrain.plugins.robustness.corruptions.levels import levels
        from jaxtrain.tasks.task_metrics import main_goal
        from jaxtrain.tools.evaluation.passes import Pass
        from jaxtrain.tools.evaluation.subject import open_subject

        subject, source = open_subject(
            evaluated.subject.model,
            evaluated.config,
            evaluated.data,
            evaluated.split,
            tta=evaluated.tta,
            on_host=True,
        )
        one, task = Pass(subject=subject, view=evaluated.evaluate.view), subject.task
        goal = main_goal(task)
        clean_error = corruption_errors.error(goal, evaluated.result.values)

        def error_of(corruption: "Corruption") -> float:
            name = f"{evaluated.split} split under {corruption.name}"
            changed = replace(source, change=corruption.of_batch)
            return corruption_errors.error(
                goal, one(changed, name).checked(name).values
            )

        errors = corruption_errors.measure(error_of, evaluated.progress)
        table, _ = levels(*source.image_shape[:2])
        return {
            "table": table,
            "metric": goal.metric,
            "frost": "procedural, not the authors' photographs",
            "errors": errors,
            "mean_error": float(np.mean(list(errors.values()))),
            "clean_error": clean_error,
            **corruption_errors.compared(errors, self._baseline, task, table),
        }

    @staticmethod
    def describe(result: dict[str, Any]) -> dict[str, str]:
        mean, clean = result["mean_error"], result["clean_error"]
        rows = {"mean error, corrupted": f"{mean:.4f}, clean {clean:.4f}"}
        if result["relative"]:
            mean = result["relative"]["mean"]
            shown = "undefined" if mean is None else f"{mean:.4f}"
            rows["mean corruption error"] = f"{shown} of {result['baseline']}"
        return rows
