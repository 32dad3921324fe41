"""Ranks of weights by magnitude, exact and independent of sharding."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jaxtrain.dtypes import widen


def ranks(weights: jax.Array, mask: jax.Array) -> jax.Array:
    """Map weights to unsigned integers that rank their magnitudes, 0 if pruned.

    The bits of non-negative floats, read as integers, compare like the floats. Adding 1
    ranks an unpruned weight of 0 above pruned weights.
    """
    sizes = jnp.abs(widen(weights))
    dtype = jnp.uint64 if sizes.dtype == jnp.float64 else jnp.uint32
    bits = jax.lax.bitcast_convert_type(sizes, dtype)
    return jnp.where(mask, bits + dtype(1), dtype(0))


def largest(ranks: jax.Array, keep: int, of: int) -> jax.Array:
    """Return the mask of the largest weights of each group, (..., inputs, outputs).

    A group is `of` consecutive input channels of an output channel (N:M sparsity).

    Args:
      ranks: Ranks of the weights, 0 for pruned weights.
      keep: Number of weights to retain per group.
      of: Number of input channels of a group, a divisor of `inputs`.
    """
    *rows, inputs, outputs = ranks.shape
    groups = ranks.reshape(*rows, inputs // of, of, outputs)
    one, other = groups[..., :, None, :], groups[..., None, :, :]
    # Among equal magnitudes, earlier weights are pruned first.
    later = jnp.tri(of, dtype=bool).T[..., None]
    before = (other > one) | ((other == one) & later)
    # A weight does not precede itself.
    place = jnp.sum(before & ~jnp.eye(of, dtype=bool)[..., None], axis=-2)
    return ((place < keep) & (groups > 0)).reshape(ranks.shape)


def smallest(ranks: Sequence[jax.Array], number: jax.Array) -> list[jax.Array]:
    """Return masks of the `number` smallest elements of several arrays.

    Ties are resolved in favour of earlier elements.

    The threshold is found by bisection over its bits: each iteration counts the smaller
    elements. Devices exchange only counts; a sort would all-gather sharded arrays.

    Args:
      ranks: Unsigned integers of one dtype.
      number: Number of elements to select over all arrays, int32 ().
    """

    def count(chosen: Sequence[jax.Array]) -> jax.Array:
        return sum((jnp.sum(x, dtype=jnp.int32) for x in chosen), jnp.int32(0))

    def nth_smallest(
        values: Sequence[jax.Array], among: Sequence[jax.Array], number: jax.Array
    ) -> jax.Array:
        """Return the `number`-th smallest of the values where `among` is True."""
        dtype = values[0].dtype
        num_bits = 8 * dtype.itemsize

        def add_bit(i: jax.Array, limit: jax.Array) -> jax.Array:
            bit = jnp.left_shift(dtype.type(1), (num_bits - 1 - i).astype(dtype))
            higher = limit | bit
            below = [(x < higher) & y for x, y in zip(values, among, strict=True)]
            return jnp.where(count(below) < number, higher, limit)

        return jax.lax.fori_loop(0, num_bits, add_bit, jnp.zeros((), dtype))

    everywhere = [jnp.ones((), bool)] * len(ranks)
    limit = nth_smallest(ranks, everywhere, number)
    below = [x < limit for x in ranks]
    equal = [x == limit for x in ranks]
    rest = number - count(below)
    positions = _positions([x.shape for x in ranks])
    last = nth_smallest(positions, equal, rest)
    return [
        lower | (same & (position <= last) & (rest > 0))
        for lower, same, position in zip(below, equal, positions, strict=True)
    ]


def _positions(shapes: Sequence[tuple[int, ...]]) -> list[jax.Array]:
    """Index of each element in the concatenation of all arrays, uint32."""
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
