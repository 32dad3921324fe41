"""A digest of every array of a state, by which damage to a checkpoint is found."""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrain.trees import by_path

_BITS = {1: jnp.uint8, 2: jnp.uint16, 4: jnp.uint32, 8: jnp.uint32}
# Knuth's multiplicative hash: 2**32 over the golden ratio.
_GOLDEN = 2654435769


def scan(state: Any) -> tuple[dict[str, int], list[str]]:
    """Return a 32-bit digest of each array, and the paths of those not finite.

    A digest is the sum of all elements' bits, each times an odd number made from its
    place, modulo 2**32: a sum of integers, so that it is the same however the array is
    split over devices and in whatever order it is added up. As the factors are odd, no
    change of a single element goes unnoticed, and one of several only by a chance of
    2**-32.

    A scalar may be infinite: a bound that is still open, as in the state of a line
    search.
    """
    # Each pipeline stage has devices of its own, and a program runs on one set of them.
    groups: dict[Any, dict[str, jax.Array]] = {}
    for path, leaf in by_path(state).items():
        groups.setdefault(frozenset(leaf.devices()), {})[path] = leaf
    found = {}
    for group in jax.device_get([_scan(leaves) for leaves in groups.values()]):
        found |= group
    sums = {path: int(value) for path, (value, _) in found.items()}
    return sums, sorted(path for path, (_, finite) in found.items() if not finite)


def digests_on_host(state: Any) -> dict[str, int]:
    """Return the same digests, of NumPy arrays and without a device."""
    return {path: _sum_on_host(leaf) for path, leaf in by_path(state).items()}


@jax.jit
def _scan(leaves: dict[str, jax.Array]) -> dict[str, tuple[jax.Array, jax.Array]]:
    def finite(x: jax.Array) -> jax.Array:
        return ~jnp.isnan(x) if x.ndim == 0 else jnp.all(jnp.isfinite(x))

    return {path: (_sum(leaf), finite(leaf)) for path, leaf in leaves.items()}


def _sum(x: jax.Array) -> jax.Array:
    if x.dtype == jnp.bool_:
        x = x.astype(jnp.uint8)
    # Of 8 bytes each is two elements: the lower half, and the upper.
    bits = jax.lax.bitcast_convert_type(x, _BITS[x.dtype.itemsize]).astype(jnp.uint32)
    strides = [math.prod(bits.shape[i + 1 :]) for i in range(bits.ndim)]
    places = (
        jax.lax.broadcasted_iota(jnp.uint32, bits.shape, dim) * jnp.uint32(stride)
        for dim, stride in enumerate(strides)
    )
    place = functools.reduce(jnp.add, places, jnp.uint32(0))
    return jnp.sum(bits * _odd(place), dtype=jnp.uint32)


def _sum_on_host(x: np.ndarray) -> int:
    # A scalar has one place, and no view of another size.
    flat = np.atleast_1d(x).reshape(-1)
    bits = flat.view(f"<u{min(x.dtype.itemsize, 4)}").astype(np.uint32)
    place = np.arange(bits.size, dtype=np.uint32)
    return int(np.sum(bits * _odd(place), dtype=np.uint32))


def _odd(place: Any) -> Any:
    """Return the factors of elements from their uint32 places, of JAX or of NumPy."""
    mixed = (place + np.uint32(1)) * np.uint32(_GOLDEN)
    return (mixed ^ (mixed >> np.uint32(15))) | np.uint32(1)
