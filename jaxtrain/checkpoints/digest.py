"""A digest of every array of a state, by which damage to a checkpoint is found."""

from typing import Any

import numpy as np

from jaxtrain.trees import by_path

# Knuth's multiplicative hash: 2**32 over the golden ratio.
_GOLDEN = np.uint32(2654435769)
# Elements summed at a time: what is computed of them stays in a core's cache.
_BLOCK = 2**17


def digests(state: Any) -> dict[str, int]:
    """Return a 32-bit digest of each NumPy array of a state, by path.

    A digest is the sum of all elements' bits, each times an odd number made from its
    place, modulo 2**32. As the factors are odd, no change of a single element goes
    unnoticed, and one of several only by a chance of 2**-32.
    """
    return {path: _digest(x) for path, x in by_path(state).items()}


def not_finite(state: Any) -> list[str]:
    """Return the paths of the NumPy arrays that are not finite, sorted.

    A scalar may be infinite: a bound that is still open, as in the state of a line
    search.
    """
    return sorted(path for path, x in by_path(state).items() if not _finite(x))


def _finite(x: np.ndarray) -> bool:
    return bool(~np.isnan(x) if x.ndim == 0 else np.isfinite(x).all())


def _digest(x: np.ndarray) -> int:
    # A scalar has one place, and no view of another size. Of 8 bytes each is two
    # elements: the lower half, and the upper.
    flat = np.atleast_1d(x).reshape(-1).view(f"<u{min(x.dtype.itemsize, 4)}")
    places = np.arange(_BLOCK, dtype=np.uint32)
    total = 0
    for start in range(0, flat.size, _BLOCK):
        bits = flat[start : start + _BLOCK].astype(np.uint32)
        factors = _odd(places[: bits.size] + np.uint32(start % 2**32))
        total += int(np.sum(bits * factors, dtype=np.uint32))
    return total % 2**32


def _odd(places: np.ndarray) -> np.ndarray:
    """Return the factors of elements from their uint32 places."""
    mixed = (places + np.uint32(1)) * _GOLDEN
    return (mixed ^ (mixed >> np.uint32(15))) | np.uint32(1)
