"""Facts of a training split, for the task to be built of."""

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
    """Return the facts of a set, with functions that look at its training split."""
    return {
        **train.facts,
        # Of others, examples without a label are left out or refused.
        "all_labelled": not own.is_own(config.data.source)
        and UNLABELLED not in config.data.train_split,
        "class_counts": partial(class_counts, config, train),
        "training_targets": partial(training_targets, config, train),
        "pixel_counts": partial(pixel_counts, config, train),
    }


def class_counts(config: Config, train: Source) -> np.ndarray:
    """Return how often the classes come in training, relative to each other, (C,).

    Raises:
      UserError: the targets are not classes.
    """
    strata, ends = train.strata(), np.array([0, len(train) - 1])
    if strata.ndim > 1 or not np.array_equal(train.targets(ends), strata[ends]):
        raise UserError(f"{config.data.source} does not group its examples by class")
    known = strata[strata >= 0]
    counts = np.bincount(known, minlength=train.facts.get("num_classes", 0))
    if config.data.sampling == "balanced":
        return (counts > 0).astype(np.int64)
    return counts


def pixel_counts(config: Config, train: Source) -> np.ndarray:
    """Return how many pixels of each value the masks of training have, int64 (256,).

    They are those of the stored masks, in their own sizes; unreadable ones have none.

    Raises:
      UserError: the set does not tell its masks.
    """
    if (count := getattr(train.store, "count_pixels", None)) is not None:
        return count(train.indices)
    targets = training_targets(config, train)
    return np.bincount(np.ravel(targets), minlength=MAX_VALUE + 1)


def training_targets(config: Config, train: Source) -> Any:
    """Return the stored targets of all training examples, (N, ...), to be counted.

    Raises:
      UserError: all images would have to be read for them.
    """
    targets = train.all_targets()
    if targets is None:
        raise UserError(
            f"{config.data.source} does not tell its targets without its images: give "
            "its store a method targets (docs/extending.md)"
        )
    return targets
