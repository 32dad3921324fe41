"""Images that are nearly the same: a hash finds candidates, a small picture decides.

The hash is the pHash of Zauner 2010 (Implementation and Benchmarking of Perceptual
Image Hash Functions): the signs of the lowest frequencies of the grey image. Candidates
differ in few of its bits; they are found by multi-index hashing (Norouzi et al. 2012,
arXiv:1307.2982) and not by comparing all with all. Of 64 bits too many images share
nearly all by chance: a pair counts if its small grey pictures are correlated, too.
"""

import itertools
from collections.abc import Iterator

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

# Side of the small picture that decides.
PRINT = 16
# Bits that candidates differ in at most: a JPEG of quality 75, half the size or a fifth
# less contrast change 0 to 4 (benchmarks/RESULTS.md).
MAX_BITS = 4
# Of two that differ in up to MAX_BITS bits, one of so many parts of the hash is equal.
NUM_BANDS = MAX_BITS + 1
# Least correlation of the small pictures.
MIN_CORRELATION = 0.995
# Frequencies in each direction; the mean, which is the first of them, is left out of
# the median that the others are compared with.
_NUM_FREQUENCIES = 8
# Pairs that are compared at a time.
_CHUNK = 2**14
# Of very many that share a part of their hash, each is compared with so many: those
# whose whole hash comes next in order.
MAX_NEIGHBOURS = 20_000


def perceptual_hashes(small: np.ndarray) -> np.ndarray:
    """Return the pHash of grey images (n, side, side), uint64 (n,)."""
    side = small.shape[-1]
    frequency, place = np.arange(_NUM_FREQUENCIES)[:, None], np.arange(side) + 0.5
    cosines = np.cos(np.pi / side * frequency * place).astype(np.float32)
    spectrum = (cosines @ small.astype(np.float32) @ cosines.T).reshape(len(small), -1)
    median = np.median(spectrum[:, 1:], axis=1, keepdims=True)
    return np.packbits(spectrum > median, axis=1).view(np.uint64)[:, 0]


def fingerprints(small: np.ndarray) -> np.ndarray:
    """Return grey images (n, side, side) with a side of PRINT, uint8."""
    num, side, _ = small.shape
    parts = small.reshape(num, PRINT, side // PRINT, PRINT, side // PRINT)
    return np.rint(parts.mean(axis=(2, 4))).astype(np.uint8)


def find_near(hashes: np.ndarray, prints: np.ndarray) -> list[np.ndarray]:
    """Return groups of images that look nearly the same: the numbers of each, rising.

    A series of n frames has n^2 / 2 pairs: they are joined as they are found, none is
    kept, and two that a third has joined are not compared.

    Args:
      hashes: pHash of each image, (N,).
      prints: its small picture, (N, PRINT, PRINT); none of one colour.
    """
    flat = prints.reshape(len(prints), PRINT * PRINT)
    joined = Joined(len(hashes))
    for pairs in _in_chunks(map(joined.apart, _candidates(hashes))):
        # Those that waited in the chunk may have been joined meanwhile.
        pairs = joined.apart(pairs)
        joined.join(pairs[_look_alike(flat, pairs)])
    return equal_ones(joined.groups)


class Joined:
    """Numbers 0 to `num` - 1, joined by pairs; memory grows with `num` only.

    Attributes:
      groups: Group of each number: the least number of the group, (num,).
    """

    def __init__(self, num: int):
        self.groups = np.arange(num)

    def apart(self, pairs: np.ndarray) -> np.ndarray:
        """Return those of the pairs (n, 2) that are in different groups."""
        one, other = self.groups[pairs.T]
        return pairs[one != other]

    def join(self, pairs: np.ndarray) -> None:
        """Make one group of those of each pair, (n, 2)."""
        if not len(pairs):
            return
        groups, places = np.unique(self.groups[pairs], return_inverse=True)
        edges = np.ones(len(pairs), bool), tuple(places.reshape(-1, 2).T)
        graph = coo_array(edges, shape=(len(groups), len(groups)))
        _, parts = connected_components(graph, directed=False)
        _, first = np.unique(parts, return_index=True)
        renamed = np.arange(len(self.groups))
        renamed[groups] = groups[first[parts]]
        self.groups = renamed[self.groups]


def equal_ones(values: np.ndarray) -> list[np.ndarray]:
    """Return the places of each value that occurs more than once, rising."""
    _, kinds, counts = np.unique(values, return_inverse=True, return_counts=True)
    places = np.flatnonzero(counts[kinds] > 1)
    order = places[np.argsort(kinds[places], kind="stable")]
    starts = np.flatnonzero(np.diff(kinds[order])) + 1
    return [part for part in np.split(order, starts) if len(part)]


def _look_alike(flat: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """Whether the small pictures of each pair (n, 2) are correlated, (n,)."""

    def unit(some: np.ndarray) -> np.ndarray:
        rows = some.astype(np.float32)
        rows -= rows.mean(axis=1, keepdims=True)
        return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-6)

    one, other = (unit(flat[side]) for side in pairs.T)
    return (one * other).sum(axis=1) >= MIN_CORRELATION


def _candidates(hashes: np.ndarray) -> Iterator[np.ndarray]:
    """Yield pairs (n, 2) that differ in MAX_BITS bits at most, each pair once."""
    bounds = np.linspace(0, 64, NUM_BANDS + 1).astype(int)
    masks = [
        np.uint64((1 << int(stop)) - (1 << int(start)))
        for start, stop in itertools.pairwise(bounds)
    ]
    for band, mask in enumerate(masks):
        order = np.lexsort((hashes, hashes & mask))
        ordered = hashes[order]
        keys = ordered & mask
        # Equal keys lie side by side: each is compared with the next, the one after
        # that, and so on, as long as any has an equal one so far ahead.
        left = np.arange(len(order))
        for ahead in range(1, min(len(order), MAX_NEIGHBOURS + 1)):
            left = left[left < len(order) - ahead]
            left = left[keys[left] == keys[left + ahead]]
            if not len(left):
                break
            differing = ordered[left] ^ ordered[left + ahead]
            near = np.bitwise_count(differing) <= MAX_BITS
            for earlier in masks[:band]:
                near &= (differing & earlier) != 0
            if near.any():
                yield np.stack([order[left[near]], order[left[near] + ahead]], axis=1)


def _in_chunks(pairs: Iterator[np.ndarray]) -> Iterator[np.ndarray]:
    """Join small arrays of pairs, and cut large ones."""
    waiting: list[np.ndarray] = []
    for some in pairs:
        waiting.append(some)
        if sum(map(len, waiting)) >= _CHUNK:
            joined = np.concatenate(waiting)
            stop = len(joined) - len(joined) % _CHUNK
            yield from np.split(joined[:stop], stop // _CHUNK)
            waiting = [joined[stop:]]
    if waiting:
        yield np.concatenate(waiting)
