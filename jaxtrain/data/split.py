"""Which examples are held out for validation."""

import hashlib
from collections.abc import Iterable

import numpy as np

# Second half of the key that chooses what is held out; the data order has the epoch.
SPLIT_STREAM = 2**32


def draws_of_names(names: Iterable[bytes]) -> np.ndarray:
    """Return a random number for each name, uint64 (N,), a function of it alone.

    What is drawn by them stays the same when other names come or go.
    """
    hashes = (hashlib.blake2b(name, digest_size=8).digest() for name in names)
    return np.frombuffer(b"".join(hashes), np.uint64)


def stratified_split(
    strata: np.ndarray, fraction: float, seed: int, draws: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Hold out `round(fraction * N)` examples, within 1 of the fraction of each group.

    Args:
      strata: the group of each example, (N,) numbers.
      fraction: of the examples held out; the largest remainders are rounded up.
      seed: of the choice.
      draws: random numbers to choose by, (N,); None: by the place of an example.

    Returns:
      The rising indices of the examples kept, and of those held out.
    """
    _, groups, counts = np.unique(strata, return_inverse=True, return_counts=True)
    shares = fraction * counts
    quotas = np.floor(shares).astype(np.int64)
    rest = round(fraction * len(strata)) - quotas.sum()
    quotas[np.argsort(quotas - shares, kind="stable")[:rest]] += 1
    if draws is None:
        # Raw draws stay the same from one version of NumPy to the next (NEP 19).
        draws = np.random.Philox(key=[seed, SPLIT_STREAM]).random_raw(len(strata))
    order = np.lexsort((draws, groups))
    starts = np.cumsum(counts) - counts
    rank_in_group = np.arange(len(strata)) - starts[groups[order]]
    held_out = rank_in_group < quotas[groups[order]]
    return np.sort(order[~held_out]), np.sort(order[held_out])
