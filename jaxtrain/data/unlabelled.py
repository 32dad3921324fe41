"""Unlabelled examples of classification data, with an empty label, NaN or -1.

Stores assign the class -1 to unlabelled examples, and `set_aside` moves the examples
to a separate split.
"""

import dataclasses
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxtrain.config import DataConfig
from jaxtrain.data import UNLABELLED
from jaxtrain.data.defects import too_many
from jaxtrain.data.image_files import listed, shown
from jaxtrain.data.problems import NUM_NAMED, Remark
from jaxtrain.data.slices import NamedSplits, join
from jaxtrain.data.stores import Opened, Store, remarks_of, targets_of
from jaxtrain.errors import UserError, counted

# Class index of unlabelled examples.
NO_LABEL = -1
_INTEGER = re.compile(r"-?\d+")


def missing_numbers(labels: np.ndarray) -> np.ndarray:
    """Return the mask of missing labels among numeric labels, bool (N,).

    NaN is missing. -1 is missing, too, unless there are smaller numbers, or -1 and 1
    are the only labels.
    """
    if labels.dtype.kind == "f" and np.isnan(labels).any():
        missing = np.isnan(labels)
        missing[~missing] = missing_numbers(labels[~missing])
        return missing
    distinct = np.unique(labels).tolist()
    are_classes = not distinct or distinct[0] < NO_LABEL or distinct == [-1, 1]
    return np.zeros(len(labels), bool) if are_classes else labels == NO_LABEL


def missing_texts(labels: Sequence[str]) -> np.ndarray:
    """Return the mask of missing labels among texts, bool (N,).

    Empty texts and `nan` are missing. If all other texts are integers, -1 is missing as
    in `missing_numbers`.
    """
    missing = np.array([label.lower() in ("", "nan") for label in labels], bool)
    known = [label for label in labels if label.lower() not in ("", "nan")]
    # Integers of 10 or more characters may overflow int64, and are not -1.
    if all(map(_INTEGER.fullmatch, known)):
        short = [int(label) if len(label) < 10 else 10**9 for label in known]
        missing[~missing] = missing_numbers(np.array(short, np.int64))
    return missing


def set_aside(config: DataConfig, store: Store, splits: NamedSplits) -> Opened:
    """Move unlabelled examples from the splits to the split `unlabelled`.

    Splits without any labels are unchanged; tasks that need labels reject such splits.

    Args:
      config: Data section of the config.
      store: Store of the data set. No example is moved if the store cannot read targets
        without images.
      splits: Indices of the examples of each split.

    Raises:
      UserError: More than `data.max_bad_fraction` of a split is unlabelled, and no
        split expression of the config includes `unlabelled`.
    """
    if "num_classes" not in store.facts:
        return store, splits
    labelled: dict[str, Any] = {}
    unlabelled: list[np.ndarray] = []
    for split, shards in splits.items():
        every = join(shards)
        labels = targets_of(store, every)
        known = np.ones(len(every), bool)
        if isinstance(labels, np.ndarray) and labels.ndim == 1:
            known = labels != NO_LABEL
        if known.all() or not known.any():
            labelled[split] = shards
            continue
        bad = np.flatnonzero(~known)
        _check_number(config, store, split, every, bad)
        ends = np.cumsum([len(shard) for shard in shards])[:-1]
        parts = zip(shards, np.split(known, ends), strict=True)
        labelled[split] = [shard[mask] for shard, mask in parts]
        unlabelled.append(every[bad])
        names = listed(_name(store, split, every, i) for i in bad.tolist())
        text = (
            f"{len(bad):,} of {len(every):,} examples in {split} are excluded: {names}"
        )
        remark = Remark(f"without a label, {split}", text, serious=True)
        remarks = (*remarks_of(store), remark)
        store = dataclasses.replace(store, remarks=remarks)  # type: ignore[type-var]
    if not unlabelled:
        return store, splits
    return store, {**labelled, UNLABELLED: [*labelled.get(UNLABELLED, ()), *unlabelled]}


def _check_number(
    config: DataConfig, store: Store, split: str, every: np.ndarray, bad: np.ndarray
) -> None:
    texts = (config.train_split, config.validation_split, config.test_split)
    taken = any(text is not None and UNLABELLED in text for text in texts)
    if taken or not too_many(len(bad), len(every), config.max_bad_fraction):
        return
    first = "\n  ".join(_name(store, split, every, i) for i in bad[:NUM_NAMED].tolist())
    raise UserError(
        f"{config.source}: {len(bad):,} of the {counted(len(every), 'example')} of the "
        f"{split} split have no label (empty, NaN or -1), more than "
        f"data.max_bad_fraction = {config.max_bad_fraction} allows: label or remove "
        "these examples, or increase data.max_bad_fraction. If -1 is a class, use "
        "class names as labels. For a task without labels set data.train_split = "
        f"{split}+{UNLABELLED}\n  {first}"
    )


def _name(store: Any, split: str, every: np.ndarray, place: int) -> str:
    index = int(every[place])
    if hasattr(store, "names"):
        return shown(store.names[index])
    places = getattr(store, "places", None)
    return places.name(index) if places is not None else f"{split} image {place}"
