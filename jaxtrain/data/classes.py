"""The classes of a set of labelled images: which there are, and where."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxtrain.data.image_files import listed
from jaxtrain.data.problems import Problems
from jaxtrain.data.slices import NamedSplits
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


def number(labels: np.ndarray) -> tuple[np.ndarray, tuple[str, ...]]:
    """Number the labels from 0, in their order.

    Numbers that begin with 0 and leave none out stay what they are.

    Args:
      labels: any numbers, (N,).

    Returns:
      The number of the class of each, int32 (N,), and the names of the classes.
    """
    found, numbers = np.unique(labels, return_inverse=True)
    return numbers.astype(np.int32), tuple(map(str, found.tolist()))


def facts(class_names: Sequence[str], digest: str) -> Mapping[str, Any]:
    """Return what is known of a set: the number and names of its classes, a digest."""
    names = tuple(class_names)
    return {"num_classes": len(names), "class_names": names, "digest": digest}


def check(
    source: str, splits: NamedSplits, labels: np.ndarray, class_names: Sequence[str]
) -> None:
    """Check that there are classes to tell apart, and that training has all of them.

    Args:
      source: Name of the set in messages.
      splits: Numbers of the examples of each split.
      labels: Class of each example; below 0 if it is unknown.
      class_names: Names of the classes.

    Raises:
      UserError: there is one class only, there is nothing to train on, or another split
        has a class that the training split lacks.
    """
    if "train" not in splits:
        raise UserError(f"{source} has the splits {', '.join(splits)}, and no train")
    if len(class_names) < 2:
        raise UserError(
            f"{source} has one class, {listed(class_names) or 'without a name'}: two "
            "or more are needed to tell apart"
        )
    trained = np.zeros(len(class_names), bool)
    trained[_present(splits["train"], labels)] = True
    problems = Problems(source)
    for split, shards in splits.items():
        lacking = [i for i in _present(shards, labels) if not trained[i]]
        if lacking:
            names = listed(class_names[int(i)] for i in lacking)
            problems.add(
                f"the {split} split has classes that the training split lacks: {names}",
                "a model cannot learn them: add training images, or take them out",
            )
    problems.check()


def _present(shards: Sequence[np.ndarray], labels: np.ndarray) -> np.ndarray:
    """Return the classes of the examples of a split."""
    present = np.unique(np.concatenate([labels[shard] for shard in shards]))
    return present[present >= 0]
