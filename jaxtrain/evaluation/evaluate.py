"""An evaluation: all that is told of what was asked for, as one dict."""

from collections.abc import Callable
from typing import Any

import jax

import jaxtrain
from jaxtrain.config import Config, DataConfig
from jaxtrain.evaluation import (
    calibration,
    outliers,
    resampling,
    robustness,
    scores,
    temperature,
)
from jaxtrain.evaluation.asked import Asked, check
from jaxtrain.evaluation.attacks import Attack
from jaxtrain.evaluation.corruptions.corrupt import Corruption
from jaxtrain.evaluation.passes import Pass, PassResult
from jaxtrain.evaluation.subject import Opened, open_other, open_subject
from jaxtrain.evaluation.temperature import Temperature
from jaxtrain.evaluation.wrapped import Corrupted, Unlabelled
from jaxtrain.inference.model import TrainedModel

# Of the form of the result: a key that changes its meaning changes it.
SCHEMA = 1


def evaluate(
    model: TrainedModel,
    config: Config,
    data: DataConfig,
    asked: Asked,
    tell: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Evaluate a model; nothing is written.

    Args:
      model: of the run.
      config: of the run.
      data: the images, the run's or others.
      asked: what is wanted.
      tell: takes lines on what takes long.

    Returns:
      What docs/evaluating.md describes.

    Raises:
      UserError: the images do not fit the model, or it has not what is asked for.
    """
    opened = open_subject(model, config, data, asked.split, tta=asked.tta)
    subject = opened.subject
    check(asked, subject)
    other = None if asked.ood is None else open_other(asked.ood, subject)
    fitted = _fit(model, config, asked) if asked.calibrate else None
    classes = subject.task.one_class_an_image
    main = Pass(
        subject,
        asked.view,
        keep=_keep if classes else None,
        num_resamples=resampling.NUM_RESAMPLES,
    )
    divided_by = 1.0 if fitted is None else fitted.temperature
    found = main(opened.source, asked.split, divided_by)
    result = _describe(opened, data, asked, found)
    if classes:
        result["calibration"] = calibration.calibration(found.kept["scores"])
    if fitted is not None:
        after = calibration.calibration(found.kept["divided"])
        result["temperature"] = {**vars(fitted), "calibration": after}
    if other is not None:
        result["out_of_distribution"] = _outliers(main, found, Unlabelled(other), asked)
    if asked.attack is not None:
        result["adversarial"] = _attacked(opened, asked, asked.attack, found)
    if asked.corruptions:
        on_host = open_subject(
            model, config, data, asked.split, tta=asked.tta, on_host=True
        )
        result["corruptions"] = _corrupted(on_host, asked, found, tell)
    return result


def _describe(
    opened: Opened, data: DataConfig, asked: Asked, found: PassResult
) -> dict[str, Any]:
    """Return all keys; None stands for what was not asked for, or has no meaning."""
    subject = opened.subject
    return {
        "schema": SCHEMA,
        "jaxtrain": jaxtrain.__version__,
        "run": subject.model.origin,
        "data": {
            "source": data.source,
            "split": asked.split,
            "num_examples": found.values["num_examples"],
            "num_unreadable": found.num_unreadable,
        },
        "tta": asked.tta,
        "class_names": subject.model.class_names,
        "metrics": found.values,
        "intervals": {
            "method": "percentile bootstrap, Poisson weights, not stratified",
            "percentiles": resampling.PERCENTILES,
            "num_resamples": resampling.NUM_RESAMPLES,
            "seed": subject.seed,
            "metrics": found.intervals,
        },
        "calibration": None,
        "temperature": None,
        "corruptions": None,
        "adversarial": None,
        "out_of_distribution": None,
    }


def _keep(outputs: jax.Array, target: Any, divided_by: jax.Array) -> dict[str, Any]:
    return {
        "scores": scores.scores(outputs, target),
        "divided": scores.scores(outputs, target, divided_by),
        "ordinary": scores.ordinary(outputs),
    }


def _keep_logits(outputs: jax.Array, target: Any, _: jax.Array) -> dict[str, Any]:
    return {"logits": outputs, "labels": target}


def _fit(model: TrainedModel, config: Config, asked: Asked) -> Temperature:
    """Fit a temperature on the validation split that the run itself had."""
    split = "validation"
    opened = open_subject(model, config, config.data, split, tta=asked.tta)
    kept = Pass(opened.subject, asked.view, keep=_keep_logits)(
        opened.source, split
    ).kept
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


def _outliers(
    main: Pass, found: PassResult, other: Unlabelled, asked: Asked
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
    opened: Opened, asked: Asked, attack: Attack, found: PassResult
) -> dict[str, Any]:
    subject = opened.subject
    one = Pass(
        subject, asked.view, attack=attack, num_resamples=resampling.NUM_RESAMPLES
    )
    attacked = one(opened.source, asked.split)
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
    opened: Opened, asked: Asked, found: PassResult, tell: Callable[[str], None]
) -> dict[str, Any]:
    subject, source = opened.subject, opened.source
    one = Pass(subject, asked.view)

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
