"""Take the new state of a step or keep the old one, in few kernels of a GPU."""

from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp

# XLA:GPU merges kernels until they read and write 96 arrays. Of a parameter, Adam with
# averaged weights reads and writes 9.
_PARAMS_A_KERNEL = 8


def choose(taken: jax.Array, new: Any, old: Any) -> Any:
    """Return `new` if `taken`, else `old`.

    What is chosen is mostly computed in the kernel that chooses: for each array one, of
    which many are short. XLA:GPU merges kernels for arrays of one shape only if they
    read another array in common, scalars not counted. So eight parameters and what
    belongs to them, by its path, read a copy of `taken` of their own: an array of two,
    behind a barrier, without which the compiler would see that it is a scalar. An array
    that two kernels read, and one of them overwrites, would be copied: hence the limit.

    Args:
      taken: bool.
      new: arrays; of what is in dicts, the keys but the first are the name.
      old: of the same tree.
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
