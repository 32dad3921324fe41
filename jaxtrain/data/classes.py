"""The classes of a set of labelled images: which there are, and where."""

import contextlib
import contextvars
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from jaxtrain.data.image_files import listed
from jaxtrain.data.problems import Problems
from jaxtrain.data.slices import NamedSplits, check_train
from jaxtrain.data.unlabelled import NO_LABEL, missing_numbers
from jaxtrain.errors import UserError

# The names of the splits that people write -> what they are called here.
SPLITS = {
    "train": "train",
    "training": "train",
    "validation": "validation",
    "valid": "validation",
    "val": "validation",
    "test": "test",
    "testing": "test",
}
# More different numbers than this, not all of them whole, are measurements; and so are
# fewer of them, if most are of one image each.
MOST_CLASSES = 20


# Whether one class is enough: for a set that a trained model is shown.
_MAY_BE_ONE = contextvars.ContextVar("may_be_one", default=False)


@contextlib.contextmanager
def may_be_one(allowed: bool) -> Iterator[None]:
    """Let sets that are opened meanwhile have a single class, if that is allowed."""
    token = _MAY_BE_ONE.set(allowed)
    try:
        yield
    finally:
        _MAY_BE_ONE.reset(token)


def number(labels: np.ndarray) -> tuple[np.ndarray, tuple[str, ...]]:
    """Number the labels from 0, in their order.

    Numbers that begin with 0 and leave none out stay what they are.

    Args:
      labels: any integers, or floats that are whole or NaN, (N,).

    Returns:
      The number of the class of each, int32 (N,), -1 where there is no label, and the
      names of the classes.

    Raises:
      ValueError: a number is not whole.
    """
    known = ~missing_numbers(labels)
    whole = labels[known].astype(np.int64)
    if (odd := whole != labels[known]).any():
        raise ValueError(
            f"a label is {labels[known][odd][0]}, which is no whole number"
        )
    found, places = np.unique(whole, return_inverse=True)
    numbers = np.full(len(labels), NO_LABEL, np.int32)
    numbers[known] = places
    return numbers, tuple(map(str, found.tolist()))


def facts(
    source: str,
    splits: NamedSplits,
    labels: np.ndarray,
    class_names: Sequence[str],
    digest: str,
) -> Mapping[str, Any]:
    """Return the facts of a set: the number and names of its classes, a digest.

    Args:
      splits: Numbers of the examples of each split.
      labels: Class of each example; below 0 if it is unknown.
      digest: SHA-256 of what the set holds.

    Raises:
      UserError: there is one class only, there is nothing to train on, or another split
        has a class that the training split lacks.
    """
    check_train(source, splits)
    if not class_names:
        raise UserError(f"{source} has no label at all: there is nothing to learn")
    if len(class_names) < 2 and not _MAY_BE_ONE.get():
        raise UserError(
            f"{source} has one class, {listed(class_names) or 'without a name'}: two "
            "or more are needed to tell apart"
        )
    present = {
        split: np.unique(np.concatenate([labels[shard] for shard in shards]))
        for split, shards in splits.items()
    }
    problems = Problems(source)
    for split, found in present.items():
        lacking = np.setdiff1d(found[found >= 0], present["train"])
        if len(lacking):
            told = listed(class_names[int(i)] for i in lacking)
            problems.add(
                f"the {split} split has classes that the training split lacks: {told}",
                "a model cannot learn them: add training images, or take them out",
            )
    problems.check()
    names = tuple(class_names)
    return {"num_classes": len(names), "class_names": names, "digest": digest}


def refuse_measurements(source: str, labels: Sequence[str]) -> None:
    """Refuse labels that look like numbers to predict: many, and not all of them whole.

    Raises:
      UserError: they are no classes.
    """
    distinct = set(labels)
    if len(distinct) <= min(MOST_CLASSES, len(labels) // 2):
        return
    try:  # With a decimal comma, too.
        values = sorted(float(label.replace(",", ".")) for label in distinct)
    except ValueError:
        return
    if not all(map(math.isfinite, values)) or all(v.is_integer() for v in values):
        return
    raise UserError(
        f"{source}: the labels look like numbers to predict, not like classes: "
        f"{len(distinct):,} different ones from {values[0]:g} to {values[-1]:g} in "
        f"{len(labels):,} rows. To predict the numbers, set task = 'regression' and "
        "data.targets to the column (docs/regression.md); to classify, give a column "
        "`label` of names, such as low, middle and high by ranges of the number"
    )
