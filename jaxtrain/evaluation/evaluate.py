"""An evaluation: all that is told of what was asked for, as one dict."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

import jaxtrain
from jaxtrain.config import Config, DataConfig
from jaxtrain.data.hold_out import absent_classes
from jaxtrain.data.image_files import listed
from jaxtrain.data.sources import Source
from jaxtrain.data.stores import describe_remarks, remarks_of
from jaxtrain.errors import UserError, counted
from jaxtrain.evaluation import calibration, outliers, resampling, robustness
from jaxtrain.evaluation.attacked import FOOLED_BY, ThreatModel
from jaxtrain.evaluation.corruptions.corrupt import Corruption, check_shape
from jaxtrain.evaluation.corruptions.levels import levels
from jaxtrain.evaluation.passes import Keep, Pass, PassResult, Subject
from jaxtrain.evaluation.resampling import SEED
from jaxtrain.evaluation.subject import open_other, open_subject
from jaxtrain.inference import temperature
from jaxtrain.inference.model import TrainedModel
from jaxtrain.tasks.base import Task
from jaxtrain.training.sparsity import sparsity_of
from jaxtrain.training.views import View, named

# Of the form of the result: a key that changes its meaning changes it.
SCHEMA = 2


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What is wanted of an evaluation.

    Attributes:
      split: Name of the split, or `all`.
      tta: Views that are averaged; None means plain images.
      calibrate: Whether to fit a temperature on the run's validation split.
      corruptions: Whether to go over the split under each corruption, too.
      baseline: An evaluation whose errors under corruptions are divided by.
      threat: Attacks under which to go over the split, too.
      ood: Source of images of something else.
    """

    split: str = "test"
    tta: str | None = None
    calibrate: bool = False
    corruptions: bool = False
    baseline: Path | None = None
    threat: ThreatModel | None = None
    ood: str | None = None

    @property
    def view(self) -> View:
        """What the model is shown of an image."""
        return named(self.tta)


def evaluate(
    model: TrainedModel,
    config: Config,
    data: DataConfig,
    asked: Asked,
    tell: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Evaluate a model; nothing is written.

    Args:
      data: Config of the images, the run's or others.
      tell: Function that takes lines on what takes long.

    Returns:
      What docs/evaluating.md describes.

    Raises:
      UserError: the images do not fit the model, or it has not what is asked for.
      BadNumbersError: Outputs of the model are not finite.
    """
    subject, source = open_subject(model, config, data, asked.split, tta=asked.tta)
    _check(asked, subject)
    for line in _describe_classes(subject):
        tell(line)
    other = None
    if asked.ood is not None:
        other = open_other(asked.ood, model, subject.data)
    fitted = _fit(model, config, asked) if asked.calibrate else None
    whole = Pass(
        subject=subject,
        view=asked.view,
        keep=_keep(subject, fitted, with_ordinary=other is not None),
        with_intervals=True,
    )
    found = whole(source, asked.split).checked(asked.split)
    if asked.corruptions:  # Before all that takes long: it may be no error.
        robustness.error(subject.task.main_goal, found.values)
    result = _describe(subject, data, asked, found)
    result["data"]["absent_classes"] = absent_classes(source)
    told = describe_remarks(remarks_of(source.store))
    result["data"]["remarks"] = told
    if subject.task.one_class_an_image:
        result["calibration"] = calibration.calibration(found.kept["scores"])
    if fitted is not None:
        after = calibration.calibration(found.kept["divided"])
        result["temperature"] = {**fitted, "calibration": after}
    if other is not None:
        name = f"--ood {asked.ood}"
        kept = whole(other, name).checked(name).kept["ordinary"]
        result["out_of_distribution"] = {
            "source": asked.ood,
            "num_examples": len(kept["energy"]),
            **{
                score: outliers.separation(ours, kept[score])
                for score, ours in found.kept["ordinary"].items()
            },
        }
    if asked.threat is not None:
        result["adversarial"] = _attacked(subject, source, asked, asked.threat, found)
    if asked.corruptions:
        on_host = open_subject(
            model, config, data, asked.split, tta=asked.tta, on_host=True
        )
        result["corruptions"] = _corrupted(*on_host, asked, found, tell)
    return result


def _check(asked: Asked, subject: Subject) -> None:
    """Refuse what the task has not, and what does not go together."""
    needs = {
        f"--tta {asked.tta}": asked.tta is not None,
        "--calibrate": asked.calibrate,
        f"--ood {asked.ood}": asked.ood is not None,
    }
    given = [option for option, is_given in needs.items() if is_given]
    task = subject.model.description.task
    if given and not subject.task.one_class_an_image:
        raise UserError(
            f"{given[0]}: task = {task!r} has no classes that it would be about; leave "
            "the option out"
        )
    pictures = {
        "--corruptions": asked.corruptions,
        f"--attack {asked.threat and asked.threat.attacks[0]}": asked.threat
        is not None,
    }
    for option in (name for name, is_given in pictures.items() if is_given):
        if subject.model.description.sound is not None:
            raise UserError(
                f"{option}: it is made for pictures, and the model hears sounds; leave "
                "the option out"
            )
    if asked.threat is not None:
        asked.threat.check(subject.task, task)
    if asked.ood is not None and asked.tta is not None:
        raise UserError(
            f"--ood {asked.ood} with views ({asked.tta}): the energy is one of logits, "
            "which averaged probabilities have not; give --tta plain"
        )
    if asked.calibrate and asked.split in ("validation", "all"):
        raise UserError(
            f"--calibrate with --split {asked.split}: the temperature is fitted on the "
            "validation split, and would be judged by it; evaluate another split"
        )
    if asked.baseline is not None and not asked.corruptions:
        raise UserError(
            f"--baseline {asked.baseline} has no effect without --corruptions"
        )
    if asked.corruptions:
        check_shape(subject.model.image_shape)
        moves = type(subject.task).follow is not Task.follow
        if moves and not subject.task.one_class_an_image:
            raise UserError(
                "--corruptions: some of them move pixels, which the targets of task = "
                f"{task!r} would have to follow; leave the option out"
            )
    if asked.baseline is not None:
        table, _ = levels(*subject.model.image_shape[:2])
        metric = subject.task.main_goal.metric
        robustness.read_baseline(asked.baseline, table, metric)


def _describe(
    subject: Subject, data: DataConfig, asked: Asked, found: PassResult
) -> dict[str, Any]:
    """Return all keys; None stands for what was not asked for, or has no meaning."""
    return {
        "schema": SCHEMA,
        "run_id": subject.model.origin["run"],
        "jaxtrain": jaxtrain.__version__,
        "run": subject.model.origin,
        "data": {
            "source": data.source,
            "split": asked.split,
            "num_examples": found.values["num_examples"],
            "num_unreadable": found.num_unreadable,
            **(subject.classes.json() if subject.classes else {}),
        },
        "tta": asked.tta,
        "class_names": subject.model.class_names,
        "sparsity": sparsity_of(subject.model.params),
        "metrics": found.values,
        "intervals": {
            "method": "percentile bootstrap, Poisson weights, not stratified",
            "percentiles": resampling.PERCENTILES,
            "num_resamples": resampling.NUM_RESAMPLES,
            # Of metrics that look at all examples at once.
            "num_resamples_of_examples": resampling.NUM_KEPT,
            "seed": SEED,
            "metrics": found.intervals,
        },
        "calibration": None,
        "temperature": None,
        "corruptions": None,
        "adversarial": None,
        "out_of_distribution": None,
    }


def _describe_classes(subject: Subject) -> Iterator[str]:
    """Yield lines on the classes of a set that are not those of the model."""
    classes, source = subject.classes, subject.data.source
    if classes is None:
        return
    if classes.missing:
        yield (
            f"{source} has none of {counted(len(classes.missing), 'class', 'classes')} "
            f"of the model: {listed(classes.missing)}"
        )
    if classes.unknown:
        yield (
            f"{source} has {counted(classes.num_unknown, 'image')} of classes that the "
            f"model does not know, which are left out: {listed(classes.unknown)}"
        )


def _keep(
    subject: Subject, fitted: dict[str, Any] | None, *, with_ordinary: bool
) -> Keep:
    """Return what keeps the scores of each example, where there are classes.

    What no part of the result is made of would be traced and compiled all the same.
    """

    def keep(outputs: jax.Array, target: Any) -> dict[str, Any]:
        if not subject.task.one_class_an_image:
            return {}
        found: dict[str, Any] = {"scores": calibration.scores(outputs, target)}
        if fitted is not None:
            divided_by = fitted["temperature"]
            found["divided"] = calibration.scores(outputs, target, divided_by)
        if with_ordinary:
            found["ordinary"] = outliers.ordinary(outputs)
        return found

    return keep


def _fit(model: TrainedModel, config: Config, asked: Asked) -> dict[str, Any]:
    """Fit a temperature on the validation split that the run itself had."""
    split = "validation"
    subject, source = open_subject(model, config, config.data, split, tta=asked.tta)

    def keep(outputs: jax.Array, target: Any) -> dict[str, Any]:
        return {"logits": outputs, "labels": target}

    one = Pass(subject=subject, view=asked.view, keep=keep)
    kept = one(source, split).checked(split).kept
    value, before, after = temperature.fit(kept["logits"], kept["labels"])
    return {
        "temperature": value,
        "run_id": model.origin["run"],
        "step": model.origin["step"],
        "split": split,
        "num_examples": len(kept["labels"]),
        "tta": asked.tta,
        "nll_before": before,
        "nll_after": after,
    }


def _attacked(
    subject: Subject,
    source: Source,
    asked: Asked,
    threat: ThreatModel,
    found: PassResult,
) -> dict[str, Any]:
    one = Pass(subject=subject, view=asked.view, threat=threat, with_intervals=True)
    attacked = one(source, asked.split).checked(asked.split)
    metric = subject.task.main_goal.metric
    by = attacked.kept[FOOLED_BY]

    def accuracy_after(number: int) -> float | None:
        """Return the share of the images that the model errs on by no attack so far."""
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
        # What is kept of each example has none.
        f"{metric}_interval": attacked.intervals.get(metric),
        "loss": attacked.values["loss"],
        f"clean_{metric}": found.values[metric],
    }


def _corrupted(
    subject: Subject,
    source: Source,
    asked: Asked,
    found: PassResult,
    tell: Callable[[str], None],
) -> dict[str, Any]:
    one, task = Pass(subject=subject, view=asked.view), subject.task
    goal = task.main_goal
    clean_error = robustness.error(goal, found.values)

    def error_of(corruption: Corruption) -> float:
        name = f"{asked.split} split under {corruption.name}"
        changed = replace(source, change=corruption.of_batch)
        return robustness.error(goal, one(changed, name).checked(name).values)

    errors = robustness.measure(error_of, tell)
    table, _ = levels(*source.image_shape[:2])
    return {
        "table": table,
        "metric": goal.metric,
        "frost": "procedural, not the authors' photographs",
        "errors": errors,
        "mean_error": float(np.mean(list(errors.values()))),
        "clean_error": clean_error,
        **robustness.compared(errors, asked.baseline, task, table),
    }
