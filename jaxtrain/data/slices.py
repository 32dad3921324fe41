"""Selection of examples: slices in TFDS syntax, and stratified hold-outs."""

import hashlib
import itertools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from jaxtrain.data import UNLABELLED
from jaxtrain.data.label_split import split_by_labels
from jaxtrain.errors import UserError

# Name of a split -> example indices, an array for each shard.
NamedSplits = Mapping[str, Sequence[np.ndarray]]

# Second half of the Philox key of hold-outs; data orders use the epoch instead.
SPLIT_STREAM = 2**32

_BOUND = r"(?:(-?[\d_.]+)(%|shard)?)?"
_PART = re.compile(rf"([^\[\]\s]+)(\[{_BOUND}(:?){_BOUND}\])?")


@dataclass(frozen=True)
class SplitRanges:
    """Index ranges of splits in a data set, to name examples in messages.

    Attributes:
      source: Name of the data set in messages.
      ranges: Index range of each split.
    """

    source: str
    ranges: Mapping[str, range]

    def locate(self, index: int) -> tuple[str, int]:
        """Return (description of the split, index in the split) of an example."""
        split = self.split_of(index)
        where = f"split {split!r} of {self.source}"
        return where, self.ranges[split].index(index)

    def split_of(self, index: int) -> str:
        """Return the split of an example, given its index in the data set."""
        return next(s for s, examples in self.ranges.items() if index in examples)

    def name(self, index: int) -> str:
        """Return the name of an example for messages."""
        return "{}: image {}".format(*self.locate(index))


def number_examples(
    source: str, lengths: Mapping[str, Sequence[int]]
) -> tuple[SplitRanges, NamedSplits]:
    """Assign consecutive indices to the examples of all splits.

    Args:
      source: Name of the data set in messages.
      lengths: Number of examples in each shard of each split.

    Returns:
      Index range of each split, and example indices of each shard.
    """
    ranges, splits, start = {}, {}, 0
    for split, shards in lengths.items():
        ends = [start, *(start + np.cumsum(shards, dtype=int)).tolist()]
        splits[split] = [np.arange(*pair) for pair in itertools.pairwise(ends)]
        ranges[split] = range(start, ends[-1])
        start = ends[-1]
    return SplitRanges(source, ranges), splits


def select(text: str, splits: NamedSplits, source: str) -> np.ndarray:
    """Return the example indices that a split expression selects, int64 (n,).

    Syntax and rounding are as in TensorFlow Datasets
    (https://www.tensorflow.org/datasets/splits): train, train[:90%], train[-100:],
    train[1000:2000]+test, train[:3shard], all.

    Args:
      text: Split expression to evaluate.
      splits: Example indices by split and shard.
      source: Name of the data set in messages.

    Raises:
      UserError: The expression is malformed, or selects no example.
    """
    try:
        parts = [_select(part.strip(), splits) for part in text.split("+")]
    except ValueError as error:
        name = next(iter(splits))
        raise UserError(
            f"split {text!r} of {source}: {error}; expected {', '.join(splits)}, or "
            f"slices of them such as {name}[:90%] or {name}[-1000:]"
        ) from None
    indices = np.concatenate(parts)
    if not len(indices):
        raise UserError(f"split {text!r} of {source} is empty")
    return indices


def count_shared(one: np.ndarray, other: np.ndarray) -> int:
    """Return the number of distinct examples that two selections share."""
    return len(np.unique(other[np.isin(other, one)]))


def _select(part: str, splits: NamedSplits) -> np.ndarray:
    if part == "all" and part not in splits:
        named = {name: shards for name, shards in splits.items() if name != UNLABELLED}
        return join([shard for shards in named.values() for shard in shards])
    match = _PART.fullmatch(part)
    if match is None:
        raise ValueError(f"{part!r} is not a split")
    name, sliced, first, first_unit, colon, last, last_unit = match.groups()
    if name not in splits:
        raise ValueError(f"the split {name!r} does not exist")
    shards = splits[name]
    if not sliced:
        return join(shards)
    # As in TFDS, a unit applies to both bounds, and an index without a colon is valid
    # only for shards.
    unit = first_unit or last_unit
    if first is last is None or not (colon or (unit == "shard" and last is None)):
        raise ValueError(f"{part!r} is not a slice")
    start, stop = _bound(first, unit, part), _bound(last, unit, part)
    if unit == "shard":
        stop = start + 1 if not colon else stop
        # The last shard is [-1:None], because [-1:0] would be empty.
        return join(shards[start : stop or None])
    examples = join(shards)
    if unit == "%":
        start, stop = (
            None if bound is None else round(bound * len(examples) / 100)
            for bound in (start, stop)
        )
    if max(abs(start or 0), abs(stop or 0)) > len(examples):
        raise ValueError(f"{part!r} exceeds the {len(examples)} examples")
    return examples[start:stop]


def _bound(value: str | None, unit: str | None, part: str) -> Any:
    if value is None:
        return None
    try:
        bound = float(value) if unit == "%" else int(value)
    except ValueError:
        raise ValueError(
            f"{value!r} in {part!r} is neither an index nor a percentage"
        ) from None
    if unit == "%" and abs(bound) > 100:
        raise ValueError(f"{part!r} exceeds 100 %")
    return bound


def check_train(source: str, splits: Collection[str]) -> None:
    """Raise UserError if a data set has no split named train."""
    if "train" not in splits:
        there = f"the splits {', '.join(splits)}" if splits else "no images"
        raise UserError(
            f"{source} has {there}, but no split `train`: rename a split to `train`; "
            "missing validation and test splits are held out from `train`"
        )


def join(shards: Iterable[np.ndarray]) -> np.ndarray:
    """Concatenate the example indices of any number of shards."""
    return np.concatenate([np.arange(0), *shards])


def groups_of(target: Any, facts: Mapping[str, Any]) -> np.ndarray:
    """Return the strata of examples for stratified hold-outs (`Store.strata`).

    Args:
      target: Targets of all examples, (N, ...), or a pytree of them.
      facts: Metadata of the data set (`Store.facts`), including any column names.

    Returns:
      - Integer targets (N,): unchanged.
      - Named columns (N, C) of 0 and 1, with -1 or NaN for missing values: label
        presence, bool (N, C).
      - Other targets: zeros (N,), a single stratum.
    """
    if isinstance(target, np.ndarray) and target.dtype.kind in "biuf":
        if target.ndim == 1 and target.dtype.kind in "iu":
            return target
        named = "target_names" in facts and "target_origin" not in facts
        if target.ndim == 2 and named:
            present = target == 1
            others = (target == 0) | (target == -1) | np.isnan(target)
            if (present | others).all():
                return present
    return np.zeros(len(jax.tree.leaves(target)[0]), np.int32)


def draws_of_names(names: Iterable[bytes]) -> np.ndarray:
    """Return a hash of each name, uint64 (N,), used as a pseudo-random number.

    The hash of a name does not change if other names are added or removed.
    """
    hashes = (hashlib.blake2b(name, digest_size=8).digest() for name in names)
    return np.frombuffer(b"".join(hashes), np.uint64)


def class_split(
    label: np.ndarray, fraction: float, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Hold out all examples of max(2, round(fraction * number of classes)) classes.

    Args:
      label: Class of each example, (N,), or -1 for unlabelled examples, which stay in
        training.
      fraction: Fraction of the classes to hold out.
      seed: Seed of the random choice.

    Returns:
      Ascending indices of the training and the held-out examples.

    Raises:
      UserError: Fewer than two classes would remain for training.
    """
    classes = np.unique(label[label != -1])
    num = max(2, round(fraction * len(classes)))
    if len(classes) - num < 2:
        raise UserError(
            f"data.hold_out = 'classes' would hold out {num} of {len(classes)} "
            "classes, and fewer than two would remain for training: decrease "
            "data.validation_fraction or data.test_fraction, or set data.hold_out = "
            "examples"
        )
    draws = np.random.Philox(key=[seed, SPLIT_STREAM]).random_raw(len(classes))
    held_out = np.isin(label, classes[np.argsort(draws, kind="stable")[:num]])
    return np.flatnonzero(~held_out), np.flatnonzero(held_out)


def stratified_split(
    strata: np.ndarray, fraction: float, seed: int, draws: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Hold out `round(fraction * N)` examples, stratified.

    The number of held-out examples of each stratum is `fraction` of its size, rounded
    by the largest-remainder method. For multi-label examples, see `split_by_labels`.

    Args:
      strata: Stratum of each example, integers (N,), or labels, bool (N, labels).
      fraction: Fraction of the examples to hold out.
      seed: Seed of the default `draws`.
      draws: Random number of each example, (N,); the smallest are held out. Defaults to
        draws that depend on the seed and the index.

    Returns:
      Ascending indices of the training and the held-out examples.
    """
    if draws is None:
        # Raw draws are stable between versions of NumPy (NEP 19).
        draws = np.random.Philox(key=[seed, SPLIT_STREAM]).random_raw(len(strata))
    if strata.ndim > 1:
        held_out = split_by_labels(strata, fraction, draws)
        return np.flatnonzero(~held_out), np.flatnonzero(held_out)
    _, groups, counts = np.unique(strata, return_inverse=True, return_counts=True)
    shares = fraction * counts
    quotas = np.floor(shares).astype(np.int64)
    num_left = round(fraction * len(strata)) - quotas.sum()
    quotas[np.argsort(quotas - shares, kind="stable")[:num_left]] += 1
    order = np.lexsort((draws, groups))
    starts = np.cumsum(counts) - counts
    rank_in_group = np.arange(len(strata)) - starts[groups[order]]
    held_out = rank_in_group < quotas[groups[order]]
    return np.sort(order[~held_out]), np.sort(order[held_out])
