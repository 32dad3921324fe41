"""Arrays of a tree: their paths, such as `params/conv1/kernel`, and their bytes."""

from typing import Any

import jax


def path_name(path: Any) -> str:
    """Return the name of a path of JAX: keys, fields and positions, with slashes."""
    return jax.tree_util.keystr(path, simple=True, separator="/")


def by_path(tree: Any) -> dict[str, Any]:
    """Return the leaves of a tree by the names of their paths, in their order."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {path_name(path): leaf for path, leaf in leaves}


def num_bytes(tree: Any) -> int:
    """Return the bytes of all arrays of a tree, which may be abstract."""
    return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(tree))
