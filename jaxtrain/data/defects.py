"""The unreadable images that a run meets: counted, told once, and only so many."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxtrain.errors import UserError
from jaxtrain.processes import cluster

# As many are named when there are too many.
NUM_NAMED = 5


@dataclass(frozen=True)
class Unreadable:
    """An image that could not be read: its number in the split, its name, and why."""

    index: int
    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.name} is unreadable: {self.reason}"

    @classmethod
    def of(cls, stored: Any, index: int, error: Exception) -> Unreadable:
        """Return it for a stored file, as pixels can always be read."""
        return cls(index, stored.name, str(error))


def too_many(num_bad: int, num_examples: int, max_fraction: float) -> bool:
    """Whether a run ends for so many unreadable images of a split.

    The fraction is rounded up: one file may be damaged in a small split, too. But one
    has to be left.
    """
    return num_bad > math.ceil(max_fraction * num_examples) or num_bad == num_examples


def lost_groups(groups: np.ndarray, is_bad: np.ndarray) -> np.ndarray:
    """Return the groups of training examples of which none can be read, rising.

    Nothing can take their places (`replacements.fill_in`), for which a run ends.
    Where an example has several labels, any other does.

    Args:
      groups: Group of each training example, (N,), or its labels, (N, labels).
      is_bad: Whether each cannot be read, (N,).
    """
    if groups.ndim > 1:
        return np.array([], np.int64)
    return np.setdiff1d(groups[is_bad], groups[~is_bad])


class Defects:
    """The unreadable images of a split.

    Args:
      max_fraction: Fraction of them, rounded up, that may be unreadable.
    """

    def __init__(self, split: str, num_examples: int, max_fraction: float):
        self.split, self._num_examples = split, num_examples
        self._max_fraction = max_fraction
        self._found: dict[int, Unreadable] = {}
        self._new: list[Unreadable] = []
        self._unshared: list[Unreadable] = []

    def add(self, unreadable: Sequence[Unreadable], *, shared: bool = False) -> None:
        """Count those that are new.

        Of several processes all must fail at the same place: they `check` where they
        meet.

        Args:
          unreadable: Unreadable images, which may have been met before.
          shared: Whether the other processes know of them.

        Raises:
          UserError: there are too many.
        """
        for bad in unreadable:
            if bad.index not in self._found:
                self._found[bad.index] = bad
                self._new.append(bad)
                if not shared:
                    self._unshared.append(bad)
        if cluster.current().num == 1:
            self.check()

    def check(self) -> None:
        """Raise UserError if there are too many."""
        if too_many(len(self._found), self._num_examples, self._max_fraction):
            first = "\n  ".join(str(b) for b in list(self._found.values())[:NUM_NAMED])
            raise UserError(
                f"{len(self._found)} of the {self._num_examples} images of the "
                f"{self.split} split are unreadable, more than data.max_bad_fraction "
                f"= {self._max_fraction} allows: mend them, take them out, or allow "
                f"more\n  {first}"
            )

    def take_new(self) -> list[Unreadable]:
        """Return the new ones since the last call."""
        new, self._new = self._new, []
        return new

    def take_unshared(self) -> list[Unreadable]:
        """Return those since the last call that other processes do not know of."""
        unshared, self._unshared = self._unshared, []
        return unshared
