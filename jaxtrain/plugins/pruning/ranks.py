"""Ranks of weights by magnitude, exact and the same however devices share them."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jaxtrain.dtypes import widen


def ranks(weights: jax.Array, mask: jax.Array) -> jax.Array:
    """Return unsigned integers that are ordered as the magnitudes, 0 of what is pruned.

    The bits of a float above 0, read as an integer, are ordered as the floats are. One
    is added: a weight that happens to be 0 comes after those that are pruned.
    """
    sizes = jnp.abs(widen(weights))
    dtype = jnp.uint64 if sizes.dtype == jnp.float64 else jnp.uint32
    bits = jax.lax.bitcast_convert_type(sizes, dtype)
    return jnp.where(mask, bits + dtype(1), dtype(0))


def largest(ranks: jax.Array, keep: int, of: int) -> jax.Array:
    """Mark the largest weights (..., inputs, outputs) of their groups.

    Args:
      ranks: Ranks of the weights.
      keep: Number that stays of each group; 0 are pruned already.
      of: Input channels of a group, which divide them.
    """
    *rows, inputs, outputs = ranks.shape
    groups = ranks.reshape(*rows, inputs // of, of, outputs)
    one, other = groups[..., :, None, :], groups[..., None, :, :]
    # Of equal ones the first are pruned first.
    later = jnp.tri(of, dtype=bool).T[..., None]
    before = (other > one) | ((other == one) & later)
    # A weight is never before itself.
    place = jnp.sum(before & ~jnp.eye(of, dtype=bool)[..., None], axis=-2)
    return ((place < keep) & (groups > 0)).reshape(ranks.shape)


def smallest(ranks: Sequence[jax.Array], number: jax.Array) -> list[jax.Array]:
    """Mark the smallest elements of several arrays; of equal ones the first.

    A bisection counts elements, once a bit: that is exact, and devices that share the
    arrays exchange some counts alone, where a sort would gather them all.

    Args:
      ranks: Unsigned integers of one dtype.
      number: Number of elements of all arrays together, int32 ().
    """

    def count(chosen: Sequence[jax.Array]) -> jax.Array:
        return sum((jnp.sum(x, dtype=jnp.int32) for x in chosen), jnp.int32(0))

    def last_below(
        values: Sequence[jax.Array], among: Sequence[jax.Array], number: jax.Array
    ) -> jax.Array:
        """Return the largest limit below which there are fewer than a number."""
        dtype = values[0].dtype
        num_bits = 8 * dtype.itemsize

        def add_bit(i: jax.Array, limit: jax.Array) -> jax.Array:
            bit = jnp.left_shift(dtype.type(1), (num_bits - 1 - i).astype(dtype))
            higher = limit | bit
            below = [(x < higher) & y for x, y in zip(values, among, strict=True)]
            return jnp.where(count(below) < number, higher, limit)

        return jax.lax.fori_loop(0, num_bits, add_bit, jnp.zeros((), dtype))

    everywhere = [jnp.ones((), bool)] * len(ranks)
    limit = last_below(ranks, everywhere, number)
    below = [x < limit for x in ranks]
    equal = [x == limit for x in ranks]
    rest = number - count(below)
    positions = _positions([x.shape for x in ranks])
    last = last_below(positions, equal, rest)
    return [
        lower | (same & (position <= last) & (rest > 0))
        for lower, same, position in zip(below, equal, positions, strict=True)
    ]


def _positions(shapes: Sequence[tuple[int, ...]]) -> list[jax.Array]:
    """Return the number of each element, uint32, in all arrays together."""
    found, first = [], 0
    for shape in shapes:
        size = 1
        number: Any = jnp.full(shape, first, jnp.uint32)
        for dim in reversed(range(len(shape))):
            number += jax.lax.broadcasted_iota(jnp.uint32, shape, dim) * size
            size *= shape[dim]
        found.append(number)
        first += size
    return found
