"""Digests of the arrays of a state, to detect damaged checkpoints.

A digest is a sum over elements. Each process digests its shards; the sum over all
shards of an array is the array's digest.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from jaxtrain.trees import by_path

# Multiplier of Knuth's multiplicative hash: 2**32 divided by the golden ratio.
_GOLDEN = np.uint32(2654435769)
# Number of elements per block; a block fits in a core's cache.
_BLOCK = 2**17

# Array path -> start indices of a shard -> digest.
ShardDigests = dict[str, dict[str, int]]


@dataclass(frozen=True)
class ArrayDigest:
    """Digest, dtype and shape of an array whose memory may already be freed."""

    dtype: np.dtype
    shape: tuple[int, ...]
    digest: int

    @classmethod
    def of(cls, x: np.ndarray) -> "ArrayDigest":
        return cls(x.dtype, x.shape, digest(x))


def digests(state: Any) -> dict[str, int]:
    """32-bit digest of each NumPy array of a state, by path.

    A digest is the sum modulo 2**32 of the elements' bit patterns, each multiplied by
    an odd number that depends on its position. A change of one element is always
    detected; a change of several elements is missed with a probability of 2**-32.
    """
    return {path: digest(x) for path, x in by_path(state).items()}


def shard_digests(state: Any, *, every_replica: bool = False) -> ShardDigests:
    """Digests of the shards of this process.

    Args:
      state: Tree of NumPy and JAX arrays.
      every_replica: Whether to include shards whose first replica is in another
        process.
    """
    return {
        path: {
            ",".join(map(str, starts)): digest(shard, starts, x.shape)
            for starts, shard in _shards(x, every_replica)
        }
        for path, x in by_path(state).items()
    }


def combine(processes: Sequence[ShardDigests]) -> dict[str, int]:
    """Combine shard digests of all processes into array digests.

    If two processes have different digests of a shard, the array's digest is -1, an
    invalid value.
    """
    shards: dict[str, dict[str, int]] = {}
    differing = set()
    for one in processes:
        for path, parts in one.items():
            known = shards.setdefault(path, {})
            for starts, value in parts.items():
                if known.setdefault(starts, value) != value:
                    differing.add(path)
    sums = {path: sum(parts.values()) % 2**32 for path, parts in shards.items()}
    return {**sums, **dict.fromkeys(differing, -1)}


def not_finite(state: Any) -> list[str]:
    """Sorted paths of arrays with non-finite values in this process.

    Infinite scalars are accepted: the state of a line search has infinite bounds.
    """
    return sorted(
        path
        for path, x in by_path(state).items()
        if not all(_finite(shard) for _, shard in _shards(x, every_replica=False))
    )


def _shards(
    x: np.ndarray | jax.Array, every_replica: bool
) -> Iterator[tuple[tuple[int, ...], np.ndarray]]:
    """Yield start indices and values of the local shards, without duplicates."""
    if isinstance(x, np.ndarray):
        yield (0,) * x.ndim, x
        return
    seen = set()
    for shard in x.addressable_shards:
        starts = tuple(part.start or 0 for part in shard.index)
        if starts not in seen and (every_replica or shard.replica_id == 0):
            seen.add(starts)
            yield starts, np.asarray(shard.data)


def _finite(x: np.ndarray) -> bool:
    return bool(~np.isnan(x) if x.ndim == 0 else np.isfinite(x).all())


def digest(
    x: np.ndarray, starts: tuple[int, ...] = (), shape: tuple[int, ...] | None = None
) -> int:
    """Digest of an array or of a shard.

    Args:
      x: Array, or shard of an array.
      starts: First index of the shard in each dim; empty for a full array.
      shape: Shape of the full array. Defaults to the shape of `x`.
    """
    # NumPy cannot view a 0-d array as a dtype of another itemsize. An element of 8
    # bytes is digested as two elements of 4 bytes, its lower and its upper half.
    flat = np.atleast_1d(x).reshape(-1).view(f"<u{min(x.dtype.itemsize, 4)}")
    halves = max(1, x.dtype.itemsize // 4)
    part, whole = (*x.shape, halves), (*(x.shape if shape is None else shape), halves)
    total = 0
    for block, positions in _blocks(part, (*(starts or (0,) * x.ndim), 0), whole):
        bits = flat[block].astype(np.uint32)
        total += int(np.sum(bits * _odd_factors(positions), dtype=np.uint32))
    return total % 2**32


def _blocks(
    part: tuple[int, ...], starts: tuple[int, ...], shape: tuple[int, ...]
) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield slices of a flattened shard, with the positions of their elements.

    Positions are indices into the flattened full array, modulo 2**32, as uint32.

    Args:
      part: Shape of the shard.
      starts: First index of the shard in each dim.
      shape: Shape of the full array.
    """
    cut = max((i for i, n in enumerate(part) if n != shape[i]), default=0)
    # The shard consists of `rows` segments, each contiguous in the full array, with
    # `run` elements.
    run, rows = math.prod(part[cut:]), math.prod(part[:cut])
    inner = math.prod(shape[cut + 1 :])
    columns = np.arange(min(run, _BLOCK), dtype=np.uint32)
    together = max(1, _BLOCK // max(run, 1))
    for first in range(0, rows, together):
        row = np.arange(first, min(first + together, rows))
        at = np.unravel_index(row, (1, *part[:cut]))
        index = [i + start for i, start in zip(at, (0, *starts[:cut]), strict=True)]
        outer = np.ravel_multi_index(index, (1, *shape[:cut]))
        bases = (outer * shape[cut] + starts[cut]) * inner
        for column in range(0, run, _BLOCK):
            bases_here = (bases + column).astype(np.uint32)[:, None]
            positions = bases_here + columns[: run - column]
            begin = first * run + column
            yield slice(begin, begin + positions.size), positions.reshape(-1)


def _odd_factors(positions: np.ndarray) -> np.ndarray:
    """Return an odd factor for each position: a hash, uint32."""
    mixed = (positions + np.uint32(1)) * _GOLDEN
    return (mixed ^ (mixed >> np.uint32(15))) | np.uint32(1)
