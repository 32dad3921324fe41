"""Which examples are held out for validation."""

import numpy as np

# Second half of the key that chooses what is held out; the data order has the epoch.
SPLIT_STREAM = 2**32


def stratified_split(
    strata: np.ndarray, fraction: float, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Hold out `round(fraction * N)` examples, within 1 of the fraction of each group.

    Args:
      strata: the group of each example, (N,) numbers.
      fraction: of the examples held out; the largest remainders are rounded up.
      seed: of the choice.

    Returns:
      The rising indices of the examples kept, and of those held out.
    """
    _, groups, counts = np.unique(strata, return_inverse=True, return_counts=True)
    shares = fraction * counts
    quotas = np.floor(shares).astype(np.int64)
    rest = round(fraction * len(strata)) - quotas.sum()
    quotas[np.argsort(quotas - shares, kind="stable")[:rest]] += 1
    # Raw draws stay the same from one version of NumPy to the next (NEP 19).
    draws = np.random.Philox(key=[seed, SPLIT_STREAM]).random_raw(len(strata))
    order = np.lexsort((draws, groups))
    starts = np.cumsum(counts) - counts
    rank_in_group = np.arange(len(strata)) - starts[groups[order]]
    held_out = rank_in_group < quotas[groups[order]]
    return np.sort(order[~held_out]), np.sort(order[held_out])
