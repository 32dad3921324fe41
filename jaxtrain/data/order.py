"""The data order: which examples a step takes, a function of the seed and the step."""

import functools
from dataclasses import dataclass

import numpy as np

# Second half of the key of a balanced order; the rest is the class and the cycle.
BALANCE_STREAM = 2**34


@functools.lru_cache(maxsize=2)
def epoch_order(seed: int, epoch: int, num_examples: int) -> np.ndarray:
    """Return the permutation of one epoch, int64 (num_examples,).

    It sorts raw draws of a counter-based generator, which NumPy keeps the same from
    version to version (NEP 19), as it does not for `permutation`.
    """
    draws = np.random.Philox(key=[seed, epoch]).random_raw(num_examples)
    return np.argsort(draws, kind="stable")


@dataclass(frozen=True, eq=False)
class DataOrder:
    """The order of the examples of a training split.

    Attributes:
      seed: Seed of the order.
      num_examples: Number of examples in the split.
      batch_size: Size of the global batch.
      groups: Group of each example, (num_examples,) numbers, to take as many from each;
        those of none, below 0, are left out. None: every example once an epoch.
      repeats: Times that an example is in its batch, each time augmented otherwise
        (Hoffer et al. 2020, arXiv:1901.09335); an epoch then has fewer examples.
    """

    seed: int
    num_examples: int
    batch_size: int
    groups: np.ndarray | None = None
    repeats: int = 1

    def indices(self, step: int) -> np.ndarray:
        """Return the examples of the global batch of a step, int64 (batch_size,).

        The last `num_examples % batch_size` of each epoch's order are left out.
        """
        epoch, place = divmod(step, self._steps)
        size = self.batch_size // self.repeats
        found = _made_epoch(self, epoch)[place * size : (place + 1) * size]
        return np.repeat(found, self.repeats)

    def copies(self, indices: np.ndarray) -> np.ndarray:
        """Count how often each example of a batch came before in it."""
        sort = np.argsort(indices, kind="stable")
        _, starts, counts = np.unique(
            indices[sort], return_index=True, return_counts=True
        )
        before = np.empty_like(indices)
        before[sort] = np.arange(len(indices)) - np.repeat(starts, counts)
        return before

    def epoch(self, step: int) -> int:
        """Return the number of the epoch of the order that a step is in, from 0."""
        return step // self._steps

    @property
    def _steps(self) -> int:
        return self.num_examples // self.batch_size

    def make_epoch(self, epoch: int) -> np.ndarray:
        """Return the examples of an epoch, int64; each repeated later."""
        if self.groups is None:
            return epoch_order(self.seed, epoch, self.num_examples)
        if self.repeats == 1:
            return self.make_balanced(epoch)
        return self.make_repeated(epoch)

    @functools.cached_property
    def _of_groups(self) -> list[np.ndarray]:
        assert self.groups is not None
        examples = np.flatnonzero(self.groups >= 0)
        _, numbers, counts = np.unique(
            self.groups[examples], return_inverse=True, return_counts=True
        )
        ordered = examples[np.argsort(numbers, kind="stable")]
        return np.split(ordered, np.cumsum(counts)[:-1])

    def make_balanced(self, epoch: int) -> np.ndarray:
        """Return the examples of an epoch, as many of each group (within one).

        Those of a group come in cycles: each once before any comes again.
        """
        places, num_groups = np.arange(self.num_examples), len(self._of_groups)
        # The places of a group are anywhere in the epoch.
        shuffled = epoch_order(self.seed, epoch, self.num_examples)
        order = np.empty_like(shuffled)
        for group, members in enumerate(self._of_groups):
            taken = shuffled[places % num_groups == group]
            first = epoch * len(taken)
            cycle, place = np.divmod(first + np.arange(len(taken)), len(members))
            for number in np.unique(cycle):
                mine = cycle == number
                order[taken[mine]] = self._shuffled(group, number)[place[mine]]
        return order

    def make_repeated(self, epoch: int) -> np.ndarray:
        """Return the balanced examples of an epoch, each of which is then repeated.

        Only these are drawn: of a longer order, cut off, groups and examples would be
        left out at random. The draws of all epochs are numbered; the groups take turns,
        and so do the examples of a group, in one order. So any number of draws in a row
        has every group, and of a group every example, equally often (within one).
        """
        num = self._steps * (self.batch_size // self.repeats)
        turn, group = np.divmod(epoch * num + np.arange(num), len(self._of_groups))
        places = epoch_order(self.seed, epoch, num)
        order = np.empty_like(places)
        for number, members in enumerate(self._of_groups):
            mine = group == number
            some = self._shuffled(number, 0)[turn[mine] % len(members)]
            order[places[mine]] = some
        return order

    def _shuffled(self, group: int, cycle: int) -> np.ndarray:
        key, members = [self.seed, BALANCE_STREAM + group], self._of_groups[group]
        draws = np.random.Philox(key=key, counter=[0, 0, 0, cycle])
        return members[np.argsort(draws.random_raw(len(members)))]


@functools.lru_cache(maxsize=2)
def _made_epoch(order: DataOrder, epoch: int) -> np.ndarray:
    return order.make_epoch(epoch)
