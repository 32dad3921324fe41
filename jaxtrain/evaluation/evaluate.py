"""An evaluation: what was asked for, and all that is told of it, as one dict."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

import jaxtrain
from jaxtrain.config import Config, DataConfig
from jaxtrain.errors import UserError
from jaxtrain.evaluation import (
    calibration,
    outliers,
    resampling,
    robustness,
    scores,
    temperature,
)
from jaxtrain.evaluation.attacks import Attack
from jaxtrain.evaluation.corruptions.corrupt import Corruption, check_shape
from jaxtrain.evaluation.corruptions.levels import levels
from jaxtrain.evaluation.passes import Found, Pass, Subject
from jaxtrain.evaluation.subject import Opened, open_other, open_subject
from jaxtrain.evaluation.temperature import Temperature
from jaxtrain.evaluation.views import VIEWS, plain
from jaxtrain.evaluation.wrapped import Corrupted, Unlabelled
from jaxtrain.inference.model import TrainedModel
from jaxtrain.tasks.classification import Classification

# Of the form of the result: a key that changes its meaning changes it.
SCHEMA = 1


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What is wanted of an evaluation.

    Attributes:
      split: which images.
      tta: the views that are averaged; None: plain images.
      calibrate: fit a temperature on the run's validation split.
      corruptions: go over the split under each corruption, too.
      baseline: an evaluation whose errors under corruptions are divided by.
      attack: go over the split under this attack, too.
      ood: a source of images of something else.
    """

    split: str = "test"
    tta: str | None = None
    calibrate: bool = False
    corruptions: bool = False
    baseline: Path | None = None
    attack: Attack | None = None
    ood: str | None = None


def evaluate(
    model: TrainedModel,
    config: Config,
    data: DataConfig,
    workdir: Path,
    asked: Asked,
    tell: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Evaluate a model; the temperature that is fitted is written into `workdir`.

    Args:
      model: of the run.
      config: of the run.
      data: the images, the run's or others.
      workdir: of the run.
      asked: what is wanted.
      tell: takes lines on what takes long.

    Returns:
      What docs/evaluating.md describes.

    Raises:
      UserError: the images do not fit the model, or it has not what is asked for.
    """
    opened = open_subject(model, config, data, asked.split, tta=asked.tta)
    subject = opened.subject
    classes = isinstance(subject.task, Classification)
    check(asked, subject)
    other = None if asked.ood is None else open_other(asked.ood, subject)
    fitted = _fit(model, config, workdir, asked) if asked.calibrate else None
    keep = _keep if classes else None
    view = VIEWS[asked.tta] if asked.tta else plain
    main = Pass(subject, view, keep=keep, num_resamples=resampling.NUM_RESAMPLES)
    divided_by = 1.0 if fitted is None else fitted.temperature
    found = main(opened.source, asked.split, divided_by)
    result = {
        "schema": SCHEMA,
        "jaxtrain": jaxtrain.__version__,
        "run": model.origin,
        "data": {
            "source": data.source,
            "split": asked.split,
            "num_examples": found.values["num_examples"],
            "num_unreadable": found.num_unreadable,
        },
        "tta": asked.tta,
        "class_names": model.class_names,
        "metrics": found.values,
        "intervals": _describe_intervals(subject, found),
        "calibration": None,
        "temperature": None,
        "corruptions": None,
        "adversarial": None,
        "out_of_distribution": None,
    }
    if classes:
        result["calibration"] = calibration.calibration(found.kept["scores"])
    if fitted is not None:
        temperature.write(workdir, fitted)
        after = calibration.calibration(found.kept["divided"])
        result["temperature"] = {**vars(fitted), "calibration": after}
    if other is not None:
        result["out_of_distribution"] = _outliers(main, found, Unlabelled(other), asked)
    if asked.attack is not None:
        result["adversarial"] = _attacked(subject, opened, view, asked, found)
    if asked.corruptions:
        host = open_subject(
            model, config, data, asked.split, tta=asked.tta, on_host=True
        )
        result["corruptions"] = _corrupted(host, view, asked, found, tell)
    return result


def check(asked: Asked, subject: Subject) -> None:
    """Refuse what needs classes of a task without, and what does not go together.

    Raises:
      UserError: something of it is asked for.
    """
    needs = {
        f"--tta {asked.tta}": asked.tta is not None,
        "--calibrate": asked.calibrate,
        "--corruptions": asked.corruptions,
        f"--attack {asked.attack.name if asked.attack else ''}": asked.attack,
        f"--ood {asked.ood}": asked.ood is not None,
    }
    given = [option for option, is_given in needs.items() if is_given]
    task = subject.model.description.task
    if given and not isinstance(subject.task, Classification):
        raise UserError(
            f"{given[0]}: task = {task!r} has no classes that it would be about; leave "
            "the option out"
        )
    if asked.ood is not None and asked.tta is not None:
        raise UserError(
            f"--ood {asked.ood} with --tta {asked.tta}: the energy is one of logits, "
            "which averaged probabilities have not; leave one of them out"
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
    if asked.baseline is not None:
        table = levels(*subject.model.image_shape[:2])[0]
        robustness.read_baseline(asked.baseline, table)


def _keep(outputs: jax.Array, target: Any, divided_by: jax.Array) -> dict[str, Any]:
    return {
        "scores": scores.scores(outputs, target),
        "divided": scores.scores(outputs, target, divided_by),
        "ordinary": scores.ordinary(outputs),
    }


def _keep_logits(outputs: jax.Array, target: Any, _: jax.Array) -> dict[str, Any]:
    return {"logits": outputs, "labels": target}


def _fit(
    model: TrainedModel, config: Config, workdir: Path, asked: Asked
) -> Temperature:
    """Fit a temperature on the validation split that the run itself had."""
    split = "validation"
    opened = open_subject(model, config, config.data, split, tta=asked.tta)
    view = VIEWS[asked.tta] if asked.tta else plain
    kept = Pass(opened.subject, view, keep=_keep_logits)(opened.source, split).kept
    value, before, after = temperature.fit(kept["logits"], kept["labels"])
    return Temperature(
        temperature=value,
        step=model.origin["step"],
        run=model.origin["run"],
        split=split,
        num_examples=len(kept["labels"]),
        tta=asked.tta,
        nll_before=before,
        nll_after=after,
    )


def _describe_intervals(subject: Subject, found: Found) -> dict[str, Any]:
    return {
        "method": "percentile bootstrap, Poisson weights, not stratified",
        "percentiles": resampling.PERCENTILES,
        "num_resamples": resampling.NUM_RESAMPLES,
        "seed": subject.seed,
        "metrics": found.intervals,
    }


def _outliers(
    main: Pass, found: Found, other: Unlabelled, asked: Asked
) -> dict[str, Any]:
    """Return how well scores tell the split from images of something else."""
    name = f"--ood {asked.ood}"
    kept = main(other, name).kept["ordinary"]
    ours = found.kept["ordinary"]
    return {
        "source": asked.ood,
        "num_examples": len(kept["energy"]),
        **{score: outliers.separation(ours[score], kept[score]) for score in ours},
    }


def _attacked(
    subject: Subject, opened: Opened, view: Any, asked: Asked, found: Found
) -> dict[str, Any]:
    attack = asked.attack
    assert attack is not None
    attacked = Pass(
        subject, view, attack=attack, num_resamples=resampling.NUM_RESAMPLES
    )(opened.source, asked.split)
    return {
        "attack": attack.name,
        "norm": attack.norm,
        "epsilon": attack.epsilon,
        "steps": attack.steps,
        "seed": subject.seed,
        "accuracy": attacked.values["accuracy"],
        "accuracy_interval": attacked.intervals["accuracy"],
        "loss": attacked.values["loss"],
        "clean_accuracy": found.values["accuracy"],
    }


def _corrupted(
    opened: Opened,
    view: Any,
    asked: Asked,
    found: Found,
    tell: Callable[[str], None],
) -> dict[str, Any]:
    subject, source = opened.subject, opened.source
    one = Pass(subject, view)

    def accuracy_of(corruption: Corruption) -> float:
        name = f"{asked.split} split under {corruption.name}"
        return one(Corrupted(source, corruption), name).values["accuracy"]

    result = robustness.measure(accuracy_of, source.image_shape, tell)
    table, classes = result["table"], subject.task.num_outputs
    if asked.baseline is not None:
        name: str | None = str(asked.baseline)
        baseline = robustness.read_baseline(asked.baseline, table)
    else:
        baseline = robustness.alexnet(classes, table)
        name = None if baseline is None else "AlexNet"
    relative = None
    if baseline is not None:
        relative = robustness.corruption_errors(result["errors"], baseline)
    clean = 1 - found.values["accuracy"]
    return {**result, "clean_error": clean, "baseline": name, "relative": relative}
