"""Norms of trees of arrays, in few kernels of a GPU."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental.layout import Layout, with_layout_constraint

from jaxtrain.dtypes import widen


def squares(tree: Any) -> jax.Array:
    """Return the sum of squares, whose root is the norm, in at least float32.

    Arrays of one shape are added up first, which needs one kernel and its last sum
    for all of them.
    """
    alike: dict[Any, list[jax.Array]] = {}
    for x in jax.tree.leaves(widen(tree)):
        alike.setdefault((x.shape, x.dtype), []).append(jnp.square(x))
    totals = [jnp.sum(sum(group[1:], group[0])) for group in alike.values()]
    return sum(totals, jnp.float32(0))


def in_rows(grads: Any) -> Any:
    """Return gradients laid out in memory as the parameters are, row by row.

    cuDNN has the gradients of kernels with the output channels first. XLA would give
    that layout to the whole update, and transpose parameters and optimizer state there
    and back. Behind the barrier there is one transpose: that of the gradient.
    """
    arrays, treedef = jax.tree.flatten(grads)
    places = [i for i, x in enumerate(arrays) if x.ndim > 1]
    straight = [
        with_layout_constraint(arrays[i], Layout(tuple(range(arrays[i].ndim))))
        for i in places
    ]
    for i, x in zip(places, jax.lax.optimization_barrier(straight), strict=True):
        arrays[i] = x
    return jax.tree.unflatten(treedef, arrays)
