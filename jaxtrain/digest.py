"""A digest of every array of a state, by which damage to a checkpoint is found."""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp

_BITS = {1: jnp.uint8, 2: jnp.uint16, 4: jnp.uint32}
# Knuth's multiplicative hash: 2**32 over the golden ratio.
_GOLDEN = 2654435769


def digests(state: Any) -> dict[str, int]:
    """Return a 32-bit digest of each array by its path, such as `params/conv1/kernel`.

    It is the sum of all elements' bits, each times an odd number made from its place,
    modulo 2**32: a sum of integers, so that it is the same however the array is split
    over devices and in whatever order it is added up. As the factors are odd, no change
    of a single element goes unnoticed, and one of several only by a chance of 2**-32.
    """
    leaves = {name(path): leaf for path, leaf in flatten(state)}
    return {path: int(value) for path, value in jax.device_get(_sums(leaves)).items()}


def flatten(tree: Any) -> list[tuple[Any, Any]]:
    return jax.tree_util.tree_flatten_with_path(tree)[0]


def name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator="/")


@jax.jit
def _sums(leaves: dict[str, jax.Array]) -> dict[str, jax.Array]:
    return {path: _sum(leaf) for path, leaf in leaves.items()}


def _sum(x: jax.Array) -> jax.Array:
    if x.dtype == jnp.bool_:
        x = x.astype(jnp.uint8)
    bits = jax.lax.bitcast_convert_type(x, _BITS[x.dtype.itemsize]).astype(jnp.uint32)
    strides = [math.prod(x.shape[i + 1 :]) for i in range(x.ndim)]
    places = (
        jax.lax.broadcasted_iota(jnp.uint32, x.shape, dim) * jnp.uint32(stride)
        for dim, stride in enumerate(strides)
    )
    place = functools.reduce(jnp.add, places, jnp.uint32(0))
    mixed = (place + jnp.uint32(1)) * jnp.uint32(_GOLDEN)
    odd = (mixed ^ (mixed >> 15)) | jnp.uint32(1)
    return jnp.sum(bits * odd, dtype=jnp.uint32)
