"""Metadata of a training split, from which a task is created."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxtrain import own
from jaxtrain.data import UNLABELLED
from jaxtrain.data.pixel_classes import MAX_VALUE
from jaxtrain.errors import UserError

if TYPE_CHECKING:
    from jaxtrain.config import Config
    from jaxtrain.data.sources import Source


def training_facts(config: Config, train: Source) -> dict[str, Any]:
    """Metadata of a training split, with functions that read its targets on demand."""
    return {
        **train.facts,
        # Only custom sources and `UNLABELLED` splits have examples without a label.
        "all_labelled": not own.is_own(config.data.source)
        and UNLABELLED not in config.data.train_split,
        "class_counts": partial(class_counts, config, train),
        "training_targets": partial(training_targets, config, train),
        "pixel_counts": partial(pixel_counts, config, train),
    }


def class_counts(config: Config, train: Source) -> np.ndarray:
    """Unnormalized frequency of each class in training batches, int64 (C,).

    The frequency is the number of training examples of the class or, with balanced
    sampling, 1 for classes with examples and 0 for others.

    Raises:
      UserError: The targets are not classes.
    """
    strata, ends = train.strata(), np.array([0, len(train) - 1])
    if strata.ndim > 1 or not np.array_equal(train.targets(ends), strata[ends]):
        raise UserError(
            f"{config.data.source} has no class label per example: use a data set "
            "with one class per example"
        )
    known = strata[strata >= 0]
    counts = np.bincount(known, minlength=train.facts.get("num_classes", 0))
    if config.data.sampling == "balanced":
        return (counts > 0).astype(np.int64)
    return counts


def pixel_counts(config: Config, train: Source) -> np.ndarray:
    """Number of pixels of each value in the training masks, int64 (256,).

    Masks are counted at their stored sizes; unreadable masks are skipped.

    Raises:
      UserError: The data set has no masks to count.
    """
    if (count := getattr(train.store, "count_pixels", None)) is not None:
        return count(train.indices)
    targets = training_targets(config, train)
    return np.bincount(np.ravel(targets), minlength=MAX_VALUE + 1)


def training_targets(config: Config, train: Source) -> Any:
    """Targets of all training examples, (N, ...), in the format of the data source.

    Raises:
      UserError: Reading the targets requires reading all images.
    """
    targets = train.all_targets()
    if targets is None:
        raise UserError(
            f"{config.data.source} cannot read targets without images: add a method "
            "`targets` to the store (docs/extending.md)"
        )
    return targets
