"""Errors on corrupted images, and what they come to."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from jaxtrain.errors import UserError
from jaxtrain.evaluation.corruptions.corrupt import CORRUPTIONS, Corruption
from jaxtrain.evaluation.corruptions.levels import SEVERITIES
from jaxtrain.json_files.read import read_json

# Mean errors of AlexNet on ImageNet-C, over the severities, in the order of
# `CORRUPTIONS`: what the authors divide by (github.com/hendrycks/robustness).
ALEXNET = (
    *(0.886428, 0.894468, 0.922640),
    *(0.819880, 0.826268, 0.785948, 0.798360),
    *(0.866816, 0.826572, 0.819324, 0.564592),
    *(0.853204, 0.646056, 0.717840, 0.606500),
)
IMAGENET_CLASSES = 1000


def measure(
    accuracy_of: Callable[[Corruption], float], tell: Callable[[str], None]
) -> dict[str, list[float]]:
    """Return the errors under each corruption, at each severity.

    Args:
      accuracy_of: Function that goes over the corrupted split.
      tell: Function that takes a line for each corruption, as it may take long.
    """
    errors = {}
    for name in CORRUPTIONS:
        errors[name] = [1 - accuracy_of(Corruption(name, s)) for s in SEVERITIES]
        shown = " ".join(f"{error:.4f}" for error in errors[name])
        tell(f"{name:<18} errors {shown}")
    return errors


def compared(
    errors: dict[str, list[float]], path: Path | None, num_classes: int, table: str
) -> dict[str, Any]:
    """Return the errors over those of a `baseline`, and its name; None: there is none.

    Args:
      errors: Errors at each severity, by corruption.
      path: Another evaluation. None means AlexNet, where that means something.
      num_classes: Number of classes of the task.
      table: Name of the table of severities.

    Raises:
      UserError: the other evaluation has none, or of images of another size.
    """
    baseline = read_baseline(path, table) if path else alexnet(num_classes, table)
    if baseline is None:
        return {"baseline": None, "relative": None}
    relative = corruption_errors(errors, baseline)
    return {"baseline": str(path or "AlexNet"), "relative": relative}


class CorruptionErrors(TypedDict):
    """The errors at each severity by corruption, and the table of severities."""

    errors: dict[str, list[float]]
    table: str


class BaselineFile(TypedDict):
    """What is needed of another evaluation."""

    corruptions: CorruptionErrors


def read_baseline(path: Path, table: str) -> dict[str, float]:
    """Return the mean error of each corruption of another evaluation.

    Raises:
      UserError: it has none, or of images of another size.
    """
    make = "make one with main.py evaluate --corruptions --out FILE"
    try:
        values = read_json(path, BaselineFile, advice=make)
    except UserError as error:
        raise UserError(
            f"--baseline: no evaluation with corruptions can be read: {error}"
        ) from None
    if values is None:
        raise UserError(f"--baseline {path} is not there: {make}")
    found, other = values["corruptions"]["errors"], values["corruptions"]["table"]
    lacking = [name for name in CORRUPTIONS if not found.get(name)]
    if lacking:
        raise UserError(f"--baseline {path} has no errors of {lacking[0]}: {make}")
    errors = {name: float(np.mean(found[name])) for name in CORRUPTIONS}
    if other != table:
        raise UserError(
            f"--baseline {path} has the severities of {other}, and these images get "
            f"those of {table}: evaluate a model of the same image size"
        )
    return errors


def alexnet(num_classes: int, table: str) -> dict[str, float] | None:
    """Return the errors of AlexNet where they mean something: on ImageNet's classes."""
    if num_classes != IMAGENET_CLASSES or table != "ImageNet-C":
        return None
    return dict(zip(CORRUPTIONS, ALEXNET, strict=True))


def corruption_errors(
    errors: Mapping[str, list[float]], baseline: Mapping[str, float]
) -> dict[str, float | None]:
    """Return the errors of each corruption over those of a baseline, and their mean.

    The mean is the mCE of Hendrycks and Dietterich 2019; 1 is as the baseline. None:
    the baseline makes no error.

    Args:
      errors: Errors at each severity, by corruption.
      baseline: Mean errors of the baseline, by corruption.
    """
    relative: dict[str, float | None] = {
        name: float(np.mean(found)) / baseline[name] if baseline[name] else None
        for name, found in errors.items()
    }
    known = [value for value in relative.values() if value is not None]
    mean = float(np.mean(known)) if len(known) == len(relative) else None
    return {**relative, "mean": mean}
