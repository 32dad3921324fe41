"""Record of the unreadable images of a split, and limit on their fraction."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxtrain.errors import UserError
from jaxtrain.processes import cluster

# Number of unreadable images to name in an error message.
NUM_NAMED = 5


@dataclass(frozen=True)
class Unreadable:
    """An unreadable image: its index in the split, its name, and the reason."""

    index: int
    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.name} is unreadable: {self.reason}"

    @classmethod
    def from_error(cls, stored: Any, index: int, error: Exception) -> Unreadable:
        """Create an instance for `stored`, a `StoredFile` that failed to decode."""
        return cls(index, stored.name, str(error))


def too_many(num_bad: int, num_examples: int, max_fraction: float) -> bool:
    """Whether a split has more unreadable images than allowed.

    The limit is rounded up, so that one file of a small split may be damaged. At least
    one image must be readable.
    """
    return num_bad > math.ceil(max_fraction * num_examples) or num_bad == num_examples


def lost_groups(groups: np.ndarray, is_bad: np.ndarray) -> np.ndarray:
    """Return the classes without readable training examples, in ascending order.

    Unreadable examples are replaced by examples of the same class
    (`replacements.fill_in`), so the run fails if a class has no readable example. The
    result is empty for multi-label data, in which any example is a valid replacement.

    Args:
      groups: Class of each training example, (N,), or its labels, (N, labels); see
        `Store.strata`.
      is_bad: Whether each example is unreadable, (N,).
    """
    if groups.ndim > 1:
        return np.array([], np.int64)
    return np.setdiff1d(groups[is_bad], groups[~is_bad])


class Defects:
    """Unreadable images of a split.

    Args:
      split: Name of the split.
      num_examples: Number of examples of the split.
      max_fraction: Maximum fraction of unreadable images (see `too_many`).
    """

    def __init__(self, split: str, num_examples: int, max_fraction: float):
        self.split, self._num_examples = split, num_examples
        self._max_fraction = max_fraction
        self._found: dict[int, Unreadable] = {}
        self._new: list[Unreadable] = []
        self._unshared: list[Unreadable] = []

    def add(self, unreadable: Sequence[Unreadable], *, shared: bool = False) -> None:
        """Add unreadable images; duplicates are ignored.

        A single-process run checks the limit immediately. With several processes, the
        caller must exchange the images and then call `check`, so that all processes
        fail at the same step.

        Args:
          unreadable: Unreadable images, possibly added before.
          shared: Whether all processes have already received these images.

        Raises:
          UserError: There are too many unreadable images.
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
        """Raise UserError if there are too many unreadable images."""
        if too_many(len(self._found), self._num_examples, self._max_fraction):
            first = "\n  ".join(str(b) for b in list(self._found.values())[:NUM_NAMED])
            raise UserError(
                f"{len(self._found)} of the {self._num_examples} images of the "
                f"{self.split} split are unreadable, more than data.max_bad_fraction = "
                f"{self._max_fraction} allows: repair or remove the images, or "
                f"increase data.max_bad_fraction\n  {first}"
            )

    def take_new(self) -> list[Unreadable]:
        """Return the unreadable images added since the last call of `take_new`."""
        new, self._new = self._new, []
        return new

    def take_unshared(self) -> list[Unreadable]:
        """Return images added with `shared=False` since the last `take_unshared`."""
        unshared, self._unshared = self._unshared, []
        return unshared
