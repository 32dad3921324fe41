"""Named numeric target columns; missing values are NaN.

The task defines the meaning of the numbers, such as a measurement or a 0/1 label.
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

# Key of the column names in `Store.facts`.
NAMES = "target_names"
# Key of the offsets in `Store.facts`, float64 (see `centred`); absent if all are 0.
ORIGIN = "target_origin"
# Maximum rounding error of a cast to float32, in standard deviations of the column.
ROUNDING = 1e-5


def number(text: str, column: str, *, comma: bool = False) -> float:
    """Parse a table cell as a number; an empty cell is NaN.

    Args:
      text: Content of the cell.
      column: Name of the column, for messages.
      comma: Whether a decimal comma is allowed.

    Raises:
      UnusableError: The cell is not a finite number.
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
            "give a number, or leave the cell empty if the value is missing",
        )
    return value


def is_rounded(column: np.ndarray) -> bool:
    """Whether a cast to float32 rounds a column (N,) by more than `ROUNDING`."""
    known = np.asarray(column, np.float64)[np.isfinite(column)]
    if not len(known) or known.min() == known.max():
        return False
    with np.errstate(over="ignore", invalid="ignore"):
        error = np.abs(known.astype(np.float32) - known).max()
        return bool(error > ROUNDING * known.std())


def centred(values: np.ndarray) -> tuple[np.ndarray, tuple[float, ...]]:
    """Convert targets to float32 without losing differences between large numbers.

    Args:
      values: Targets of all examples, (N, columns), NaN for missing values.

    Returns:
      Targets, float32 (N, columns); and the offset subtracted from each column in
      float64, or () if all offsets are 0. The offset is the middle of the column's
      range if float32 is too coarse for the column (`is_rounded`), else 0.
    """
    origin = [_middle(x) if is_rounded(x) else 0.0 for x in values.T]
    if not any(origin):
        return values.astype(np.float32), ()
    return (values - np.array(origin)).astype(np.float32), tuple(origin)


def original(targets: np.ndarray, facts: Mapping[str, Any]) -> np.ndarray:
    """Undo `centred`: add the offsets, if any.

    Args:
      targets: Targets or predictions, (N, columns).
      facts: `Store.facts` of the data set.

    Returns:
      Targets in float64; unchanged if there are no offsets.
    """
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
    """Return `Store.facts` of a data set with target columns.

    Args:
      source: Name of the data set in messages.
      splits: Indices of the examples of each split.
      names: Names of the columns.
      digest: SHA-256 of the columns and the images.
      origin: Offsets that `centred` has subtracted from each column.

    Returns:
      Column names, offsets (if any), and a digest of the data set.

    Raises:
      UserError: The data set has no training split, or two columns have the same name.
    """
    check_train(source, splits)
    if twice := [name for name in names if names.count(name) > 1]:
        raise UserError(
            f"{source} has two target columns named {shown(twice[0])!r}: rename one of "
            "the columns"
        )
    parts = digest, *names, *map(repr, origin)
    sha256 = hashlib.sha256("\0".join(parts).encode(errors="replace"))
    moved = {ORIGIN: origin} if origin else {}
    return {NAMES: tuple(map(shown, names)), "digest": sha256.hexdigest(), **moved}


def multi_hot(
    labels: Sequence[Sequence[Any] | None], names: Sequence[Any]
) -> np.ndarray:
    """Encode the labels of images as a multi-hot array, float32 (N, names).

    Args:
      labels: Labels of each image. None, for unknown labels, is encoded as NaN.
      names: All labels, in the order of the columns.
    """
    places = {name: i for i, name in enumerate(names)}
    columns = np.zeros((len(labels), len(names)), np.float32)
    for row, present in zip(columns, labels, strict=True):
        if present is None:
            row[:] = math.nan
        else:
            row[[places[label] for label in present]] = 1
    return columns
