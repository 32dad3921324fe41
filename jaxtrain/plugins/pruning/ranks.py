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


def smallest(
    ranks: Sequence[jax.Array], wanted: jax.Array, *, together: bool
) -> list[jax.Array]:
    """Mark the smallest elements; of equal ones the first.

    A bisection counts elements, once a bit: that is exact, and devices that share the
    arrays exchange some counts alone, where a sort would gather them all.

    Args:
      ranks: Unsigned integers of one dtype.
      wanted: Number of elements, int32 (arrays,); of all arrays `together`, in each of
        its places.
      together: Whether the elements of all arrays are ranked together.
    """

    def count(chosen: Sequence[jax.Array]) -> jax.Array:
        each = jnp.stack([jnp.sum(x, dtype=jnp.int32) for x in chosen])
        return jnp.full_like(each, jnp.sum(each)) if together else each

    def last_below(
        values: Sequence[jax.Array], among: Sequence[jax.Array], number: jax.Array
    ) -> jax.Array:
        """Return the largest limits below which there are fewer than a number."""
        dtype = values[0].dtype
        num_bits = 8 * dtype.itemsize

        def add_bit(i: jax.Array, limits: jax.Array) -> jax.Array:
            bit = jnp.left_shift(dtype.type(1), (num_bits - 1 - i).astype(dtype))
            higher = limits | bit
            below = [
                (x < higher[j]) & some
                for j, (x, some) in enumerate(zip(values, among, strict=True))
            ]
            return jnp.where(count(below) < number, higher, limits)

        return jax.lax.fori_loop(0, num_bits, add_bit, jnp.zeros(len(values), dtype))

    everywhere = [jnp.ones((), bool)] * len(ranks)
    limits = last_below(ranks, everywhere, wanted)
    below = [x < limits[i] for i, x in enumerate(ranks)]
    equal = [x == limits[i] for i, x in enumerate(ranks)]
    rest = wanted - count(below)
    positions = _positions([x.shape for x in ranks], together=together)
    last = last_below(positions, equal, rest)
    return [
        below[i] | (equal[i] & (positions[i] <= last[i]) & (rest[i] > 0))
        for i in range(len(ranks))
    ]


def _positions(shapes: Sequence[tuple[int, ...]], *, together: bool) -> list[jax.Array]:
    """Return the number of each element, uint32, in its array or in all of them."""
    found, first = [], 0
    for shape in shapes:
        size = 1
        number: Any = jnp.full(shape, first if together else 0, jnp.uint32)
        for dim in reversed(range(len(shape))):
            number += jax.lax.broadcasted_iota(jnp.uint32, shape, dim) * size
            size *= shape[dim]
        found.append(number)
        first += size
    return found
