"""Classes of labelled data sets: numbering, names and checks."""

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

# Accepted split name -> canonical name.
SPLITS = {
    "train": "train",
    "training": "train",
    "validation": "validation",
    "valid": "validation",
    "val": "validation",
    "test": "test",
    "testing": "test",
}
# Numbers that are not all integers look like a regression target if the number of
# distinct values exceeds this, or half the number of examples.
MOST_CLASSES = 20


# Whether a data set may have a single class, as in evaluation of a trained model.
_MAY_BE_ONE = contextvars.ContextVar("may_be_one", default=False)


@contextlib.contextmanager
def may_be_one(allowed: bool) -> Iterator[None]:
    """Allow or forbid a single class in data sets that are opened in this context."""
    token = _MAY_BE_ONE.set(allowed)
    try:
        yield
    finally:
        _MAY_BE_ONE.reset(token)


def number(labels: np.ndarray) -> tuple[np.ndarray, tuple[str, ...]]:
    """Map integer labels to class indices from 0, in ascending order.

    Labels 0, 1, 2 and so on without gaps are unchanged.

    Args:
      labels: Integers, or floats that are integral or NaN, (N,).

    Returns:
      Class indices, int32 (N,), -1 for missing labels; and the class names.

    Raises:
      ValueError: A label is not an integer.
    """
    known = ~missing_numbers(labels)
    integers = labels[known].astype(np.int64)
    if (odd := integers != labels[known]).any():
        raise ValueError(f"a label is {labels[known][odd][0]}, which is not an integer")
    distinct, places = np.unique(integers, return_inverse=True)
    numbers = np.full(len(labels), NO_LABEL, np.int32)
    numbers[known] = places
    return numbers, tuple(map(str, distinct.tolist()))


def facts(
    source: str,
    splits: NamedSplits,
    labels: np.ndarray,
    class_names: Sequence[str],
    digest: str,
) -> Mapping[str, Any]:
    """Return `Store.facts` of a data set with classes.

    Args:
      source: Name of the data set in messages.
      splits: Indices of the examples of each split.
      labels: Class index of each example, negative if unlabelled.
      class_names: Names of the classes, by index.
      digest: SHA-256 of the contents of the data set.

    Returns:
      Number and names of the classes, and `digest`.

    Raises:
      UserError: The data set has fewer than two classes or no training split, or a
        class of another split is absent from the training split.
    """
    check_train(source, splits)
    if not class_names:
        raise UserError(
            f"{source} has no labels: use a labelled data set, or a task without labels"
        )
    if len(class_names) < 2 and not _MAY_BE_ONE.get():
        raise UserError(
            f"{source} has only one class ({listed(class_names) or 'without a name'}): "
            "expected two or more classes"
        )
    present = {
        split: np.unique(np.concatenate([labels[shard] for shard in shards]))
        for split, shards in splits.items()
    }
    problems = Problems(source)
    for split, classes in present.items():
        lacking = np.setdiff1d(classes[classes >= 0], present["train"])
        if len(lacking):
            missing = listed(class_names[int(i)] for i in lacking)
            problems.add(
                f"the {split} split has classes that the training split lacks: "
                f"{missing}",
                "add training images of these classes, or remove the classes",
            )
    problems.check()
    names = tuple(class_names)
    return {"num_classes": len(names), "class_names": names, "digest": digest}


def refuse_measurements(source: str, labels: Sequence[str]) -> None:
    """Check that labels do not look like a regression target.

    Raises:
      UserError: The labels are many distinct numbers, some of which are not integers.
    """
    distinct = set(labels)
    if len(distinct) <= min(MOST_CLASSES, len(labels) // 2):
        return
    try:  # Decimal commas are accepted.
        values = sorted(float(label.replace(",", ".")) for label in distinct)
    except ValueError:
        return
    if not all(map(math.isfinite, values)) or all(v.is_integer() for v in values):
        return
    raise UserError(
        f"{source}: the labels look like numbers to predict, not like classes: "
        f"{len(distinct):,} distinct values from {values[0]:g} to {values[-1]:g} in "
        f"{len(labels):,} rows. To predict the numbers, set task = 'regression' and "
        "data.targets to the column (docs/regression.md); to classify, give a column "
        "`label` of class names, such as low, middle and high for ranges of numbers"
    )
