"""Evaluation of a model with all requested parts; the result is one dict."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax

import jaxtrain
from jaxtrain.config import Config, DataConfig
from jaxtrain.data.batch import Batch
from jaxtrain.data.hold_out import absent_classes
from jaxtrain.data.image_files import listed
from jaxtrain.data.stores import describe_remarks, remarks_of
from jaxtrain.errors import UserError, counted
from jaxtrain.evaluation import calibration, resampling
from jaxtrain.evaluation.resampling import SEED
from jaxtrain.inference import temperature
from jaxtrain.inference.model import TrainedModel
from jaxtrain.tools.evaluation import PARTS
from jaxtrain.tools.evaluation.parts import Evaluated, EvaluationPart, check_classes
from jaxtrain.tools.evaluation.passes import Keep, Pass, PassResult, Subject
from jaxtrain.tools.evaluation.subject import open_subject
from jaxtrain.training.sparsity import sparsity_of
from jaxtrain.training.views import View, named

# Format version of the result.
SCHEMA = 2


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Options of an evaluation.

    Attributes:
      split: Name of the split, or `all`.
      tta: Name of the test-time augmentation. None for plain images.
      calibrate: Whether to fit a temperature on the run's validation split.
      parts: Optional parts by their key in the result.
    """

    split: str = "test"
    tta: str | None = None
    calibrate: bool = False
    parts: Mapping[str, EvaluationPart] = field(default_factory=dict)

    @property
    def view(self) -> View:
        """Function that applies the test-time augmentation."""
        return named(self.tta)


def views_of(tta: str | None, config: Config) -> str | None:
    """Return the name of the test-time augmentation, or None for plain images.

    Args:
      tta: Value of the option: a name, or `plain`. Defaults to `train.tta`.
      config: Config of the run.
    """
    if tta is None:
        return config.train.tta
    return None if tta == "plain" else tta


def evaluate(
    model: TrainedModel,
    config: Config,
    data: DataConfig,
    asked: Asked,
    progress: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Evaluate a model, without writing files.

    Args:
      model: Model to evaluate.
      config: Config of the model's run.
      data: Data config of the evaluation: of the run, or of another data set.
      asked: Options of the evaluation.
      progress: Function that prints a progress message.

    Returns:
      The result as documented in docs/evaluating.md.

    Raises:
      UserError: The images do not fit the model, or the model does not support an
        option.
      BadNumbersError: Outputs of the model are not finite.
    """
    subject, source = open_subject(model, config, data, asked.split, tta=asked.tta)
    _check(asked, subject)
    for line in _describe_classes(subject):
        progress(line)
    fitted = _fit(model, config, asked) if asked.calibrate else None
    evaluate = Pass(
        subject=subject,
        view=asked.view,
        keep=_keep(subject, fitted, asked.parts),
        with_intervals=True,
    )
    found = evaluate(source, asked.split).checked(asked.split)
    for part in asked.parts.values():
        part.check_values(subject, found.values)
    result = _describe(subject, data, asked, found)
    result["data"]["absent_classes"] = absent_classes(source)
    told = describe_remarks(remarks_of(source.store))
    result["data"]["remarks"] = told
    if subject.task.one_class_an_image:
        result["calibration"] = calibration.calibration(found.kept.values["scores"])
    if fitted is not None:
        after = calibration.calibration(found.kept.values["divided"])
        result["temperature"] = {**fitted, "calibration": after}
    evaluated = Evaluated(
        subject=subject,
        config=config,
        data=data,
        split=asked.split,
        tta=asked.tta,
        source=source,
        evaluate=evaluate,
        result=found,
        progress=progress,
    )
    for key, part in asked.parts.items():
        result[key] = part.measure(evaluated)
    return result


def _check(asked: Asked, subject: Subject) -> None:
    """Raise UserError if options contradict each other, or do not fit the task."""
    if asked.tta is not None:
        check_classes(f"--tta {asked.tta}", subject)
    if asked.calibrate:
        check_classes("--calibrate", subject)
    if asked.calibrate and asked.split in ("validation", "all"):
        raise UserError(
            f"--calibrate with --split {asked.split}: the temperature is fitted on the "
            "validation split, so metrics on this split would be biased; choose "
            "another --split"
        )
    for part in asked.parts.values():
        part.check(subject, asked.tta)


def _describe(
    subject: Subject, data: DataConfig, asked: Asked, found: PassResult
) -> dict[str, Any]:
    """Return the result, with None for keys that `evaluate` may compute later."""
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
            # Fewer for metrics with `keep`, whose per-example arrays are resampled.
            "num_resamples_of_examples": resampling.NUM_KEPT,
            "seed": SEED,
            "metrics": found.intervals,
        },
        "calibration": None,
        "temperature": None,
        **dict.fromkeys(PARTS),
    }


def _describe_classes(subject: Subject) -> Iterator[str]:
    """Yield messages on classes that differ between data set and model."""
    classes, source = subject.classes, subject.data.source
    if classes is None:
        return
    if classes.missing:
        yield (
            f"{source} lacks {counted(len(classes.missing), 'class', 'classes')} "
            f"of the model: {listed(classes.missing)}"
        )
    if classes.unknown:
        yield (
            f"{source} has {counted(classes.num_unknown, 'image')} of classes unknown "
            f"to the model, which are excluded: {listed(classes.unknown)}"
        )


def _keep(
    subject: Subject,
    fitted: dict[str, Any] | None,
    parts: Mapping[str, EvaluationPart],
) -> Keep:
    """Return the function that selects the per-example arrays to retain.

    It selects only arrays that calibration or `parts` need, because every selected
    array is computed.
    """

    def keep(outputs: jax.Array, batch: Batch) -> dict[str, Any]:
        found, target = dict[str, Any](), batch["target"]
        if subject.task.one_class_an_image:
            found["scores"] = calibration.scores(outputs, target)
        if fitted is not None:
            divided_by = fitted["temperature"]
            found["divided"] = calibration.scores(outputs, target, divided_by)
        of_parts = {key: part.keep(outputs) for key, part in parts.items()}
        return found | {key: kept for key, kept in of_parts.items() if kept}

    return keep


def _fit(model: TrainedModel, config: Config, asked: Asked) -> dict[str, Any]:
    """Fit a temperature on the run's validation split."""
    split = "validation"
    subject, source = open_subject(model, config, config.data, split, tta=asked.tta)

    def keep(outputs: jax.Array, batch: Batch) -> dict[str, Any]:
        return {"logits": outputs, "labels": batch["target"]}

    one = Pass(subject=subject, view=asked.view, keep=keep)
    kept = one(source, split).checked(split).kept.values
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
