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


def number(text: str, column: str) -> float:
    """Return the number in a cell of a table; NaN where it is empty.

    Raises:
      UnusableError: it holds something else.
    """
    text = text.strip()
    if not text:
        return math.nan
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UnusableError(
            f"{shown(column)} is {shown(text)!r}",
            "give a number, or nothing where it is missing",
        )
    return value


def facts(
    source: str, splits: NamedSplits, names: Sequence[str], digest: str
) -> Mapping[str, Any]:
    """Return what is known of a set: the names of its columns, a digest.

    Args:
      source: Name of the set in messages.
      splits: Numbers of the examples of each split.
      names: Name of each column.
      digest: SHA-256 of what the columns and the images hold.

    Raises:
      UserError: there is nothing to train on, or two columns have one name.
    """
    check_train(source, splits)
    if twice := [name for name in names if names.count(name) > 1]:
        raise UserError(f"{source} has two target columns {shown(twice[0])!r}")
    whole = hashlib.sha256("\0".join((digest, *names)).encode(errors="replace"))
    return {NAMES: tuple(map(shown, names)), "digest": whole.hexdigest()}


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
