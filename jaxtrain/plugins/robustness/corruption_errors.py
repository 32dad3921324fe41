"""Errors on corrupted images, and mean corruption error (mCE)."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from jaxtrain import invocation
from jaxtrain.errors import UserError
from jaxtrain.json_files.run_id import read_of_run
from jaxtrain.plugins.robustness.corruptions.corrupt import CORRUPTIONS, Corruption
from jaxtrain.plugins.robustness.corruptions.levels import SEVERITIES
from jaxtrain.tasks.base import Task, Values
from jaxtrain.tasks.metrics import Goal
from jaxtrain.tasks.task_metrics import main_goal

# AlexNet's error for each of `CORRUPTIONS`, averaged over the severities of ImageNet-C:
# the baseline of the ImageNet-C authors (github.com/hendrycks/robustness).
ALEXNET = (
    *(0.886428, 0.894468, 0.922640),
    *(0.819880, 0.826268, 0.785948, 0.798360),
    *(0.866816, 0.826572, 0.819324, 0.564592),
    *(0.853204, 0.646056, 0.717840, 0.606500),
)
IMAGENET_CLASSES = 1000


def error(goal: Goal, values: Values) -> float:
    """Convert the main metric to an error: 1 - metric if higher values are better.

    Args:
      goal: Main metric and its direction.
      values: Metrics of a split, by name.

    Raises:
      UserError: The metric is not a number, or exceeds 1 although higher is better.
    """
    value = values[goal.metric]
    if not isinstance(value, int | float) or (goal.higher and value > 1):
        raise UserError(
            f"--corruptions: {goal.metric} = {value!r} cannot be converted to an "
            "error: expected a number, at most 1 if higher is better (error = 1 - "
            "metric); leave --corruptions out"
        )
    return 1 - value if goal.higher else value


def measure(
    error_of: Callable[[Corruption], float], progress: Callable[[str], None]
) -> dict[str, list[float]]:
    """Measure the error at each severity of each corruption.

    Args:
      error_of: Function that returns the error under a corruption.
      progress: Function that prints a line; called once per corruption.

    Returns:
      Corruption -> errors at severities 1 to 5.
    """
    errors = {}
    for name in CORRUPTIONS:
        errors[name] = [error_of(Corruption(name, s)) for s in SEVERITIES]
        shown = " ".join(f"{error:.4f}" for error in errors[name])
        progress(f"{name:<18} errors {shown}")
    return errors


def compared(
    errors: dict[str, list[float]], path: Path | None, task: Task, table: str
) -> dict[str, Any]:
    """Return the name of the baseline, and the errors relative to the baseline.

    Args:
      errors: Corruption -> errors at severities 1 to 5.
      path: The evaluation.json of the baseline. Defaults to AlexNet for models with
        ImageNet's 1000 classes; other models then have no baseline.
      task: Task of the evaluated model.
      table: Name of the severity table (see `levels`).

    Returns:
      Dict with the keys `baseline` and `relative`; without a baseline, both are None.

    Raises:
      UserError: The file lacks errors, or is for another image size or metric.
    """
    if path is not None:
        baseline = read_baseline(path, table, main_goal(task).metric)
    else:
        num_classes = task.num_outputs if task.one_class_an_image else None
        baseline = alexnet(num_classes, table)
    if baseline is None:
        return {"baseline": None, "relative": None}
    relative = corruption_errors(errors, baseline)
    return {"baseline": str(path or "AlexNet"), "relative": relative}


class CorruptionErrors(TypedDict):
    """Section `corruptions` of an evaluation.json.

    Attributes:
      errors: Corruption -> errors at severities 1 to 5.
      table: Name of the severity table (see `levels`).
      metric: Main metric, from which the errors were computed.
    """

    errors: dict[str, list[float]]
    table: str
    metric: str


class BaselineFile(TypedDict):
    """Required fields in a baseline's evaluation.json."""

    corruptions: CorruptionErrors


def read_baseline(path: Path, table: str, metric: str) -> dict[str, float]:
    """Read a baseline's error for each corruption, averaged over the severities.

    Raises:
      UserError: The file lacks errors, or is for another image size or metric.
    """
    how = invocation.command("evaluate", "--corruptions", "--out", "FILE")
    make = f"create the file with {how}"
    try:
        values = read_of_run(path, BaselineFile, advice=make)
    except UserError as error:
        raise UserError(
            "--baseline: expected an evaluation.json written with --corruptions: "
            f"{error}"
        ) from None
    if values is None:
        raise UserError(f"--baseline {path} does not exist: {make}")
    found, other = values["corruptions"]["errors"], values["corruptions"]["table"]
    lacking = [name for name in CORRUPTIONS if not found.get(name)]
    if lacking:
        raise UserError(f"--baseline {path} lacks errors for {lacking[0]}: {make}")
    errors = {name: float(np.mean(found[name])) for name in CORRUPTIONS}
    if other != table:
        raise UserError(
            f"--baseline {path} contains error rates for the corruption table "
            f"{other}, but images of this size use {table}: evaluate a baseline with "
            "the same image size"
        )
    of = values["corruptions"]["metric"]
    if of != metric:
        raise UserError(
            f"--baseline {path} contains error rates of {of}, but this task uses "
            f"{metric}: evaluate a baseline of the same task"
        )
    return errors


def alexnet(num_classes: int | None, table: str) -> dict[str, float] | None:
    """Return AlexNet's error on each corruption of ImageNet-C.

    None for another number of classes, or another corruption table.
    """
    if num_classes != IMAGENET_CLASSES or table != "ImageNet-C":
        return None
    return dict(zip(CORRUPTIONS, ALEXNET, strict=True))


def corruption_errors(
    errors: Mapping[str, list[float]], baseline: Mapping[str, float]
) -> dict[str, float | None]:
    """Divide errors by the errors of a baseline; return the quotients and their `mean`.

    The mean is the mCE of Hendrycks and Dietterich 2019. A quotient is None if the
    baseline's error is 0; the mean is None if any quotient is None.

    Args:
      errors: Corruption -> errors at severities 1 to 5, which are averaged.
      baseline: Corruption -> mean error of the baseline.
    """
    relative: dict[str, float | None] = {
        name: float(np.mean(found)) / baseline[name] if baseline[name] else None
        for name, found in errors.items()
    }
    known = [value for value in relative.values() if value is not None]
    mean = float(np.mean(known)) if len(known) == len(relative) else None
    return {**relative, "mean": mean}
