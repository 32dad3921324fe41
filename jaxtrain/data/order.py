"""Data order: the examples of each step, deterministic given the seed."""

import functools
from dataclasses import dataclass

import numpy as np

# Second half of the Philox key that shuffles a group's examples: this offset plus the
# number of the group.
BALANCE_STREAM = 2**34


@functools.lru_cache(maxsize=2)
def epoch_order(seed: int, epoch: int, num_examples: int) -> np.ndarray:
    """Return the permutation of an epoch, int64 (num_examples,).

    The permutation sorts raw draws. NumPy guarantees that raw draws, unlike results of
    `Generator.permutation`, do not change between versions (NEP 19).

    Args:
      seed: Seed of the order; first half of the Philox key.
      epoch: Epoch number; second half of the Philox key.
      num_examples: Number of examples of the split.
    """
    draws = np.random.Philox(key=[seed, epoch]).random_raw(num_examples)
    return np.argsort(draws, kind="stable")


@dataclass(frozen=True, eq=False)
class DataOrder:
    """Order of the examples of a training split.

    Attributes:
      seed: Seed of the order.
      num_examples: Number of examples in the split.
      batch_size: Size of the global batch.
      groups: Class of each example, (num_examples,), for balanced sampling. Examples
        with a negative class are left out. None disables balanced sampling.
      repeats: Number of differently augmented copies of an example in its batch (Hoffer
        et al. 2020, arXiv:1901.09335). More repeats mean fewer distinct examples per
        epoch.
    """

    seed: int
    num_examples: int
    batch_size: int
    groups: np.ndarray | None = None
    repeats: int = 1

    def indices(self, step: int) -> np.ndarray:
        """Return the indices of the global batch of a step, int64 (batch_size,).

        The last `num_examples % batch_size` examples of each epoch are dropped.
        """
        epoch, place = divmod(step, self._steps)
        size = self.batch_size // self.repeats
        examples = _made_epoch(self, epoch)[place * size : (place + 1) * size]
        return np.repeat(examples, self.repeats)

    def copies(self, indices: np.ndarray) -> np.ndarray:
        """Return the number of earlier occurrences of each example in a batch, (n,).

        Args:
          indices: Indices of the examples of the batch, (n,).
        """
        sort = np.argsort(indices, kind="stable")
        _, starts, counts = np.unique(
            indices[sort], return_index=True, return_counts=True
        )
        before = np.empty_like(indices)
        before[sort] = np.arange(len(indices)) - np.repeat(starts, counts)
        return before

    def epoch(self, step: int) -> int:
        """Return the epoch number of a step, starting at 0."""
        return step // self._steps

    @property
    def _steps(self) -> int:
        return self.num_examples // self.batch_size

    def make_epoch(self, epoch: int) -> np.ndarray:
        """Return the order of the distinct examples of an epoch, int64 (n,)."""
        if self.groups is None:
            return epoch_order(self.seed, epoch, self.num_examples)
        if self.repeats == 1:
            return self.make_balanced(epoch)
        return self.make_repeated(epoch)

    @functools.cached_property
    def _group_members(self) -> list[np.ndarray]:
        assert self.groups is not None
        examples = np.flatnonzero(self.groups >= 0)
        _, numbers, counts = np.unique(
            self.groups[examples], return_inverse=True, return_counts=True
        )
        ordered = examples[np.argsort(numbers, kind="stable")]
        return np.split(ordered, np.cumsum(counts)[:-1])

    def make_balanced(self, epoch: int) -> np.ndarray:
        """Return the order of an epoch with equally many examples of each group.

        Numbers of examples per group differ by at most one. An example is repeated only
        after all examples of its group were used.
        """
        places, num_groups = np.arange(self.num_examples), len(self._group_members)
        # The positions of each group in the epoch are random.
        shuffled = epoch_order(self.seed, epoch, self.num_examples)
        order = np.empty_like(shuffled)
        for group, members in enumerate(self._group_members):
            taken = shuffled[places % num_groups == group]
            first = epoch * len(taken)
            cycle, place = np.divmod(first + np.arange(len(taken)), len(members))
            for number in np.unique(cycle):
                in_cycle = cycle == number
                order[taken[in_cycle]] = self._shuffled(group, number)[place[in_cycle]]
        return order

    def make_repeated(self, epoch: int) -> np.ndarray:
        """Return the balanced order of an epoch's distinct examples if `repeats` > 1.

        Only the examples that the epoch uses are drawn: truncating a longer order would
        unbalance the groups. Across epochs, groups alternate, and each group cycles
        through its examples in a fixed order. Thus, the numbers of draws of two groups,
        or of two examples of a group, differ by at most one.
        """
        num = self._steps * (self.batch_size // self.repeats)
        turn, group = np.divmod(epoch * num + np.arange(num), len(self._group_members))
        places = epoch_order(self.seed, epoch, num)
        order = np.empty_like(places)
        for number, members in enumerate(self._group_members):
            of_group = group == number
            members_drawn = self._shuffled(number, 0)[turn[of_group] % len(members)]
            order[places[of_group]] = members_drawn
        return order

    def _shuffled(self, group: int, cycle: int) -> np.ndarray:
        key, members = [self.seed, BALANCE_STREAM + group], self._group_members[group]
        draws = np.random.Philox(key=key, counter=[0, 0, 0, cycle])
        return members[np.argsort(draws.random_raw(len(members)))]


@functools.lru_cache(maxsize=2)
def _made_epoch(order: DataOrder, epoch: int) -> np.ndarray:
    return order.make_epoch(epoch)
