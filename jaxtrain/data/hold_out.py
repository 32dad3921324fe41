"""Validation and test splits held out of a training split."""

import functools

import numpy as np

from jaxtrain.config import DataConfig
from jaxtrain.data.boxes import NAMES as BOX_NAMES
from jaxtrain.data.columns import NAMES as TARGET_NAMES
from jaxtrain.data.image_source import Source
from jaxtrain.data.slices import SPLIT_STREAM, class_split, stratified_split
from jaxtrain.errors import UserError, counted, first_of

# Number of absent classes to name in a message.
NUM_NAMED = 5


class HoldOut:
    """Hold-out of the test split, and then the validation split, from a training split.

    If all examples of a class or label are drawn for a hold-out, one example is
    returned to training. Older versions did not return examples; their splits are
    recorded in `data.json`.

    Args:
      config: Data section of the config.
      source: Training split before the hold-outs.
    """

    def __init__(self, config: DataConfig, source: Source):
        self._config, self._source = config, source
        # Indices of examples: `_remaining` were never drawn for a hold-out; `_returned`
        # were drawn, but returned to training.
        self._remaining = np.arange(len(source))
        self._returned = np.arange(0)

    @property
    def train(self) -> Source:
        """Remaining training examples."""
        return self._source.subset(np.sort(np.r_[self._remaining, self._returned]))

    @functools.cached_property
    def _strata(self) -> np.ndarray:
        return self._source.strata()

    def take(self, field: str, fraction: float, seed: int) -> Source:
        """Hold out a fraction of the remaining examples.

        Args:
          field: Name of the config field of the fraction, for messages.
          fraction: Fraction of the remaining examples to hold out.
          seed: Seed of the random choice.

        Raises:
          UserError: No example would be held out.
        """
        num, strata = len(self._remaining), self._strata[self._remaining]
        if self._config.hold_out == "classes":
            if strata.ndim > 1 or "num_classes" not in self._source.facts:
                raise UserError(
                    "data.hold_out = 'classes' requires one class per image, which "
                    f"{self._config.source} does not have; set data.hold_out = "
                    "examples"
                )
            kept, held_out = class_split(strata, fraction, seed)
            held = self._remaining[held_out]
        else:
            # With `mixed` in `Store.facts`, examples are ordered by a hash of the file
            # name, and the first examples are held out. Adding or removing a file moves
            # few other files between splits. A packed copy has the same splits.
            draws = np.arange(num) if self._source.facts.get("mixed") else None
            kept, held_out = stratified_split(strata, fraction, seed, draws)
            held = self._without_last(self._remaining[kept], self._remaining[held_out])
            if len(held_out) and not len(held):
                held = self._redraw(len(held_out), seed)
        if not len(held):
            last = (
                ", as one example of each class remains for training"
                if len(held_out)
                else ""
            )
            raise UserError(
                f"{field} = {fraction} holds out none of the {num} examples{last}: set "
                f"a larger {field}, or add images"
            )
        self._returned = np.setdiff1d(self._returned, held)
        self._remaining = np.setdiff1d(self._remaining, np.r_[held, self._returned])
        return self._source.subset(held)

    def _without_last(self, kept: np.ndarray, held: np.ndarray) -> np.ndarray:
        """Remove from `held` one example of each class that training would lack.

        The removed examples are returned to training.

        Strata that are not classes, such as values of an integer regression target, may
        be held out entirely.

        Args:
          kept: Indices of the examples that stay in training.
          held: Indices of the examples drawn for the hold-out.
        """
        known = np.r_[kept, self._returned]
        if self._strata.ndim > 1:
            back = _last_of_labels(self._strata[known], self._strata[held])
        elif "num_classes" in self._source.facts:
            classes, first = np.unique(self._strata[held], return_index=True)
            back = first[np.isin(classes, self._strata[known], invert=True)]
        else:
            back = np.arange(0)
        self._returned = np.r_[self._returned, held[back]]
        return np.delete(held, back)

    def _redraw(self, num: int, seed: int) -> np.ndarray:
        """Choose `num` multi-label examples to hold out; training retains every label.

        Called if `_without_last` returned all held-out examples to training. The result
        is empty if there are too few suitable examples.
        """
        if self._strata.ndim == 1:
            return np.arange(0)
        places = np.union1d(self._remaining, self._returned)
        strata = self._strata[places]
        counts = strata.sum(axis=0)
        chosen: list[int] = []
        draws = np.random.Philox(key=[seed, SPLIT_STREAM]).random_raw(len(places))
        for i in np.argsort(draws, kind="stable").tolist():
            if len(chosen) < num and (counts[strata[i]] > 1).all():
                chosen.append(i)
                counts = counts - strata[i]
        complete = len(chosen) == num
        return np.sort(places[chosen]) if complete else np.arange(0)


def _last_of_labels(known: np.ndarray, held: np.ndarray) -> np.ndarray:
    """Choose held-out examples that have the labels missing in training.

    Args:
      known: Label presence of the training examples, bool (n, labels).
      held: Label presence of the held-out examples, bool (m, labels).

    Returns:
      Indices of the chosen examples in `held`.
    """
    lacking = held.any(axis=0) & ~known.any(axis=0)
    back: list[int] = []
    while lacking.any():
        # The first example with the first missing label. The example may have other
        # missing labels, too.
        place = int(np.argmax(held[:, np.argmax(lacking)]))
        back.append(place)
        lacking &= ~held[place]
    return np.array(back, np.int64)


def describe_absent(names: list[str]) -> str:
    """Describe absent classes for messages: their number, and the first names."""
    first = first_of(names, NUM_NAMED)
    return f"of {counted(len(names), 'class', 'classes')}: {first}"


def absent_classes(source: Source) -> list[str]:
    """Return the names of the classes or labels that no image of a split has.

    The list is empty for TFDS data sets, whose labels are slow to read.
    """
    facts = source.facts
    columns = facts.get(TARGET_NAMES, facts.get(BOX_NAMES))
    if columns is None and "num_classes" not in facts:
        return []
    if getattr(source.store, "labels_in_records", False):
        return []
    strata = source.strata()
    if columns is not None:
        there = strata.any(axis=0) if strata.ndim > 1 else np.ones(len(columns), bool)
        names = columns
    else:
        num = facts["num_classes"]
        names = facts.get("class_names") or range(num)
        there = np.isin(np.arange(num), strata)
    absent = np.flatnonzero(~np.asarray(there))
    return [str(names[i]) for i in absent.tolist()]
