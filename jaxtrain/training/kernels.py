"""Norms of trees and the choice between two of them, in few kernels of a GPU."""

from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental.layout import Layout as MemoryLayout
from jax.experimental.layout import with_layout_constraint

from jaxtrain import scopes
from jaxtrain.dtypes import widen
from jaxtrain.parallel.layout import MIN_SHARDED_SIZE, Layout

# XLA:GPU merges kernels until they read and write 96 arrays. Of a parameter, Adam with
# averaged weights reads and writes 9.
_PARAMS_A_KERNEL = 8


def global_norm(tree: Any, layout: Layout) -> jax.Array:
    """Return the norm of parameters, or gradients, in at least float32."""
    return jnp.sqrt(squares(tree, layout))


@scopes.part(scopes.OPTIMIZER)
def squares(tree: Any, layout: Layout) -> jax.Array:
    """Return the sum of squares, whose root is the norm, in at least float32.

    Arrays of one size are added up before they are summed, in one kernel for all, and
    so are small ones, with zeros behind them; on several devices arrays of one shape.
    A barrier keeps each sum a kernel of its own. Merged with the sum of the parameters
    after the update, as XLA:GPU of jaxlib 0.11.2 does for gradients in bfloat16, the
    norm was wrong, by up to ten times (benchmarks/RESULTS.md, "Norms that were wrong").

    Args:
      tree: Parameters, or gradients.
      layout: Layout of the run: arrays that the devices split in different ways stay
        apart.
    """
    alike: dict[Any, list[jax.Array]] = {}
    specs = jax.tree.leaves(layout.grad_specs(tree))
    for x, spec in zip(jax.tree.leaves(widen(tree)), specs, strict=True):
        if layout.mesh.size > 1:
            key = x.shape, x.dtype, spec
        else:
            x = layout.flat(x)
            key = max(x.size, MIN_SHARDED_SIZE), x.dtype
        alike.setdefault(key, []).append(jnp.square(x))
    added = [jax.lax.optimization_barrier(_add_up(x)) for x in alike.values()]
    totals = [jnp.sum(x) for x in added]
    return sum(totals, jnp.float32(0))


def _add_up(arrays: list[jax.Array]) -> jax.Array:
    """Add up arrays of one shape, or vectors, with zeros behind the shorter ones."""
    size = max(x.size for x in arrays)
    same = [x if x.size == size else jnp.pad(x, (0, size - x.size)) for x in arrays]
    return sum(same[1:], same[0])


@scopes.part(scopes.OPTIMIZER)
def in_rows(grads: Any, layout: Layout) -> Any:
    """Return gradients laid out in memory as the parameters are.

    On one GPU these lie as cuDNN gives the gradients (`Layout.kernel_order`), which
    stay as they are. Elsewhere they lie row by row, and on several GPUs cuDNN has the
    gradients of kernels with the output channels first. XLA would take that layout for
    the whole update, and transpose parameters and optimizer state there and back. The
    barrier keeps it to one transpose, of the gradient, whose result the norm and the
    update then read.

    Args:
      grads: Gradients of trained parameters, as `Layout.reduce_grads` leaves them.
      layout: Layout of the run: XLA takes a constraint on the memory for one on the
        sharding, too, and so each device has it on its own share.
    """

    if layout.kernel_order is not None:
        return grads

    def in_memory(grads: Any) -> Any:
        rows = jax.tree.map(lambda x: MemoryLayout(tuple(range(x.ndim))), grads)
        return with_layout_constraint(grads, rows)

    specs = layout.grad_specs(grads)
    constrain = jax.shard_map(
        in_memory, mesh=layout.mesh, in_specs=(specs,), out_specs=specs
    )
    arrays, treedef = jax.tree.flatten(constrain(grads))
    kernels = [i for i, x in enumerate(arrays) if x.ndim > 1]
    held = jax.lax.optimization_barrier([arrays[i] for i in kernels])
    for i, x in zip(kernels, held, strict=True):
        arrays[i] = x
    return jax.tree.unflatten(treedef, arrays)


def choose(taken: jax.Array, new: Any, old: Any) -> Any:
    """Return `new` if `taken`, else `old`.

    What is chosen is mostly computed in the kernel that chooses: for each array one, of
    which many are short. XLA:GPU merges kernels for arrays of one shape only if they
    read another array in common, scalars not counted. So eight parameters and what
    belongs to them, by its path, read a copy of `taken` of their own: an array of two,
    behind a barrier, without which the compiler would see that it is a scalar. An array
    that two kernels read, and one of them overwrites, would be copied: hence the limit.

    Args:
      taken: Whether the new arrays are chosen.
      new: Arrays; of what is in dicts, the keys but the first are the name.
      old: Arrays of the same tree.
    """
    leaves, treedef = jax.tree_util.tree_flatten_with_path(new)
    kernels: dict[Any, int] = {}
    num_alike: Counter[tuple[int, ...]] = Counter()
    for path, x in leaves:
        if (name := _name(path, x)) not in kernels:
            kernels[name] = num_alike[x.shape] // _PARAMS_A_KERNEL
            num_alike[x.shape] += 1
    pair = jnp.stack([taken, taken])
    copies = jax.lax.optimization_barrier([pair] * (max(kernels.values()) + 1))
    chosen = [
        jnp.where(copies[kernels[_name(path, x)]][0], x, y)
        for (path, x), y in zip(leaves, jax.tree.leaves(old), strict=True)
    ]
    return jax.tree.unflatten(treedef, chosen)


def _name(path: Any, x: jax.Array) -> Any:
    keys = [key.key for key in path if isinstance(key, jax.tree_util.DictKey)]
    return x.shape, *keys[1:]
