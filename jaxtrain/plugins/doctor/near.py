"""Search for near-duplicate images, with perceptual hashes and thumbnails.

The hash is the pHash of Zauner 2010 (Implementation and Benchmarking of Perceptual
Image Hash Functions): thresholded low-frequency DCT coefficients of the grey image.
Candidate pairs with few different bits are found by multi-index hashing (Norouzi et al.
2012, arXiv:1307.2982), without comparing all pairs. Because hashes of 64 bits collide
too often, near-duplicates must also have correlated grey thumbnails.
"""

import itertools
from collections.abc import Iterator

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

# Height and width of the thumbnails in pixels.
PRINT = 16
# Maximum Hamming distance of near-duplicates. JPEG compression with quality 75,
# downsampling by 2, or a contrast reduction of 20 % changes 0 to 4 bits
# (benchmarks/RESULTS.md).
MAX_BITS = 4
# Number of bands of a hash: hashes with at most MAX_BITS different bits have at least
# one equal band.
NUM_BANDS = MAX_BITS + 1
# Minimum correlation of the thumbnails of near-duplicates.
MIN_CORRELATION = 0.995
# Number of DCT frequencies per axis. A bit of the hash is set if its DCT coefficient is
# above the median. The median excludes the coefficient of frequency 0.
_NUM_FREQUENCIES = 8
# Number of pairs whose thumbnails are compared at a time.
_CHUNK = 2**14
# Maximum number of comparisons per image and band. Images with an equal band are sorted
# by the full hash, and each image is compared with the next images.
MAX_NEIGHBOURS = 20_000


def perceptual_hashes(small: np.ndarray) -> np.ndarray:
    """Compute the pHash of grey images (n, side, side), uint64 (n,)."""
    side = small.shape[-1]
    frequency, place = np.arange(_NUM_FREQUENCIES)[:, None], np.arange(side) + 0.5
    cosines = np.cos(np.pi / side * frequency * place).astype(np.float32)
    spectrum = (cosines @ small.astype(np.float32) @ cosines.T).reshape(len(small), -1)
    median = np.median(spectrum[:, 1:], axis=1, keepdims=True)
    return np.packbits(spectrum > median, axis=1).view(np.uint64)[:, 0]


def fingerprints(small: np.ndarray) -> np.ndarray:
    """Resize grey images (n, side, side) to thumbnails, uint8 (n, PRINT, PRINT)."""
    num, side, _ = small.shape
    parts = small.reshape(num, PRINT, side // PRINT, PRINT, side // PRINT)
    return np.rint(parts.mean(axis=(2, 4))).astype(np.uint8)


def find_near(hashes: np.ndarray, prints: np.ndarray) -> list[np.ndarray]:
    """Group near-duplicate images; return the ascending indices of each group.

    A series of n similar frames has n^2 / 2 pairs. To bound memory and time, groups are
    merged pair by pair without storing the pairs, and images in one group are not
    compared again.

    Args:
      hashes: pHash of each image, (N,).
      prints: Thumbnails, none of a single colour, (N, PRINT, PRINT).
    """
    flat = prints.reshape(len(prints), PRINT * PRINT)
    joined = Joined(len(hashes))
    for pairs in _in_chunks(map(joined.apart, _candidates(hashes))):
        # Earlier chunks may have connected the two groups of a pair.
        pairs = joined.apart(pairs)
        joined.join(pairs[_look_alike(flat, pairs)])
    return equal_ones(joined.groups)


class Joined:
    """Union-find over the integers 0 to `num` - 1, with O(num) memory.

    Attributes:
      groups: Smallest integer in the group of each integer, (num,).
    """

    def __init__(self, num: int):
        self.groups = np.arange(num)

    def apart(self, pairs: np.ndarray) -> np.ndarray:
        """Return the pairs that connect different groups; `pairs` is (n, 2)."""
        one, other = self.groups[pairs.T]
        return pairs[one != other]

    def join(self, pairs: np.ndarray) -> None:
        """Merge the two groups of each pair; `pairs` is (n, 2)."""
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
    """Return the ascending indices of each value that occurs more than once."""
    _, kinds, counts = np.unique(values, return_inverse=True, return_counts=True)
    places = np.flatnonzero(counts[kinds] > 1)
    order = places[np.argsort(kinds[places], kind="stable")]
    starts = np.flatnonzero(np.diff(kinds[order])) + 1
    return [part for part in np.split(order, starts) if len(part)]


def _look_alike(flat: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """Whether the thumbnails of each pair (n, 2) are correlated, bool (n,)."""

    def unit(some: np.ndarray) -> np.ndarray:
        rows = some.astype(np.float32)
        rows -= rows.mean(axis=1, keepdims=True)
        return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-6)

    one, other = (unit(flat[side]) for side in pairs.T)
    return (one * other).sum(axis=1) >= MIN_CORRELATION


def _candidates(hashes: np.ndarray) -> Iterator[np.ndarray]:
    """Yield pairs (n, 2) with at most MAX_BITS different bits, each pair once."""
    bounds = np.linspace(0, 64, NUM_BANDS + 1).astype(int)
    masks = [
        np.uint64((1 << int(stop)) - (1 << int(start)))
        for start, stop in itertools.pairwise(bounds)
    ]
    for band, mask in enumerate(masks):
        order = np.lexsort((hashes, hashes & mask))
        ordered = hashes[order]
        keys = ordered & mask
        # Equal keys are adjacent: compare each with the next, the second next, and so
        # on, while any two keys at that distance are equal.
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
    """Concatenate and split arrays of pairs (n, 2) into arrays of `_CHUNK` pairs."""
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
