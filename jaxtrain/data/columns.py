"""Targets of several numbers an image: columns with names, missing values NaN.

What the numbers are, such as whether a label is there or how large a thing is, is
between the user and the task.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxtrain.data.image_files import shown
from jaxtrain.data.problems import UnusableError
from jaxtrain.data.slices import NamedSplits, check_train
from jaxtrain.errors import UserError

# What a task finds the names of the columns under, among the facts of a set.
NAMES = "target_names"
# Fact of a set: what was subtracted from each column (see `centred`), float64; missing
# where nothing was.
ORIGIN = "target_origin"
# Largest error of rounding to float32, in deviations of the column.
ROUNDING = 1e-5


def number(text: str, column: str, *, comma: bool = False) -> float:
    """Return the number in a cell of a table; NaN where it is empty.

    Args:
      comma: Whether a comma may stand before the decimals.

    Raises:
      UnusableError: it holds something else.
    """
    text = text.strip()
    if not text:
        return math.nan
    try:
        decimal = comma and text.count(",") == 1 and "." not in text
        value = float(text.replace(",", ".") if decimal else text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UnusableError(
            f"{shown(column)} is {shown(text)!r}",
            "give a number, or nothing where it is missing",
        )
    return value


def is_rounded(column: np.ndarray) -> bool:
    """Whether float32 rounds off the differences of a column, (N,)."""
    known = np.asarray(column, np.float64)[np.isfinite(column)]
    if not len(known) or known.min() == known.max():
        return False
    with np.errstate(over="ignore", invalid="ignore"):
        error = np.abs(known.astype(np.float32) - known).max()
        return bool(error > ROUNDING * known.std())


def centred(values: np.ndarray) -> tuple[np.ndarray, tuple[float, ...]]:
    """Return numbers as float32 whose differences are kept.

    Args:
      values: Numbers of all examples, (N, columns), NaN where one is missing.

    Returns:
      Numbers float32 (N, columns), and what was subtracted from each column in float64:
      the middle of its range where float32 would round its differences off, else 0. ()
      where nothing was subtracted.
    """
    origin = [_middle(x) if is_rounded(x) else 0.0 for x in values.T]
    if not any(origin):
        return values.astype(np.float32), ()
    return (values - np.array(origin)).astype(np.float32), tuple(origin)


def original(targets: np.ndarray, facts: Mapping[str, Any]) -> np.ndarray:
    """Undo `centred`: (N, columns) as the set has them, float64 if they were moved."""
    origin = facts.get(ORIGIN)
    return targets if origin is None else targets.astype(np.float64) + np.array(origin)


def _middle(column: np.ndarray) -> float:
    known = column[np.isfinite(column)].astype(np.float64)
    return float(known.min() / 2 + known.max() / 2)


def facts(
    source: str,
    splits: NamedSplits,
    names: Sequence[str],
    digest: str,
    origin: tuple[float, ...] = (),
) -> Mapping[str, Any]:
    """Return the facts of a set: the names of its columns, a digest.

    Args:
      splits: Numbers of the examples of each split.
      digest: SHA-256 of what the columns and the images hold.
      origin: What `centred` has subtracted from each column.

    Raises:
      UserError: there is nothing to train on, or two columns have one name.
    """
    check_train(source, splits)
    if twice := [name for name in names if names.count(name) > 1]:
        raise UserError(f"{source} has two target columns {shown(twice[0])!r}")
    parts = digest, *names, *map(repr, origin)
    whole = hashlib.sha256("\0".join(parts).encode(errors="replace"))
    moved = {ORIGIN: origin} if origin else {}
    return {NAMES: tuple(map(shown, names)), "digest": whole.hexdigest(), **moved}


def of_labels(
    labels: Sequence[Sequence[Any] | None], names: Sequence[Any]
) -> np.ndarray:
    """Return float32 (N, names): 1 where an image has the label, else 0.

    Args:
      labels: Labels of each image; None where they are not known, which is NaN.
      names: All labels, in the order of the columns.
    """
    places = {name: i for i, name in enumerate(names)}
    columns = np.zeros((len(labels), len(names)), np.float32)
    for row, some in zip(columns, labels, strict=True):
        if some is None:
            row[:] = math.nan
        else:
            row[[places[label] for label in some]] = 1
    return columns
