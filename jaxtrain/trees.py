"""Utilities for pytrees of arrays: path names such as `params/conv1/kernel`."""

from typing import Any

import jax


def path_name(path: Any) -> str:
    """Return a JAX key path as text, such as `params/conv1/kernel`."""
    return jax.tree_util.keystr(path, simple=True, separator="/")


def by_path(tree: Any) -> dict[str, Any]:
    """Return a dict from path names to the leaves of a tree, in leaf order."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {path_name(path): leaf for path, leaf in leaves}


def num_bytes(tree: Any) -> int:
    """Return the total size of a tree's arrays in bytes; arrays may be abstract."""
    return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(tree))
