"""Norms of pytrees, and selection between pytrees, in few GPU kernels."""

from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental.layout import Layout as MemoryLayout, with_layout_constraint

from jaxtrain import scopes
from jaxtrain.dtypes import widen
from jaxtrain.parallel.layout import MIN_SHARDED_SIZE, Layout

# XLA:GPU fuses kernels up to a total of 96 inputs and outputs. Adam with averaged
# weights reads and writes 9 arrays per parameter.
_PARAMS_A_KERNEL = 8


def global_norm(tree: Any, layout: Layout) -> jax.Array:
    """Global norm of parameters or gradients, in at least float32."""
    return jnp.sqrt(squares(tree, layout))


@scopes.part(scopes.OPTIMIZER)
def squares(tree: Any, layout: Layout) -> jax.Array:
    """Sum of the squares of all elements of a pytree, in at least float32.

    The squares of arrays of equal size are added elementwise before the reduction, in a
    single kernel; small arrays are zero-padded to equal size. On several devices only
    arrays of equal shape are added. A barrier keeps each sum in a separate kernel:
    without the barrier, XLA:GPU of jaxlib 0.11.2 fuses the sum of bfloat16 gradients
    with the sum of the updated parameters, and the norm is wrong by a factor of up to
    ten (benchmarks/RESULTS.md, "Norms that were wrong").

    Args:
      tree: Parameters or gradients.
      layout: Layout of the run: arrays with different shardings are not added.
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
    """Add arrays of equal shape, or vectors zero-padded to equal length."""
    size = max(x.size for x in arrays)
    same = [x if x.size == size else jnp.pad(x, (0, size - x.size)) for x in arrays]
    return sum(same[1:], same[0])


@scopes.part(scopes.OPTIMIZER)
def row_major_grads(grads: Any, layout: Layout) -> Any:
    """Constrain gradients to the parameters' memory layout.

    On one GPU parameters already have the memory layout of cuDNN's gradients
    (`Layout.kernel_order`). On several GPUs parameters are row-major, while cuDNN
    writes kernel gradients with output channels first. XLA would propagate that layout
    into the update, and transpose parameters and optimizer state twice. A layout
    constraint and an optimization barrier restrict the transposition to the gradient.

    Args:
      grads: Gradients of trained parameters, from `Layout.reduce_grads`.
      layout: Layout of the run. XLA treats a layout constraint as a sharding constraint
        too, so the constraint is applied to each shard separately.
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
    """Select each leaf from `new` if `taken`, else from `old`.

    XLA mostly fuses the update into the selection, one kernel per array, and many of
    these kernels are short. XLA:GPU fuses kernels over arrays of equal shape only if
    they share a non-scalar input. Therefore each group of eight parameters, with their
    optimizer state, reads a separate copy of `taken`: an array of two elements behind a
    barrier, as the compiler would otherwise see a scalar. With larger groups XLA would
    copy arrays that one kernel reads and another kernel overwrites.

    Args:
      taken: Whether to select the new arrays, a scalar.
      new: Arrays in nested dicts; the keys after the first are the parameter's path.
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
