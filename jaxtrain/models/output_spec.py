"""The output spec: the shape of what a model puts out for an image, or a tree."""

from typing import Any

from jaxtrain.config import MAX_COUNT

# Dicts and tuples within each other.
MAX_DEPTH = 8


def plain_spec(spec: Any, depth: int = MAX_DEPTH) -> Any:
    """Return a shape, or dicts and lists of shapes, as dicts and tuples.

    Args:
      spec: Output spec of a task, or what JSON has made of it.
      depth: Dicts and lists within each other at most.

    Returns:
      None for anything else.
    """
    if isinstance(spec, dict) and depth:
        named = {str(name): plain_spec(one, depth - 1) for name, one in spec.items()}
        return None if None in named.values() else named
    if isinstance(spec, list | tuple) and depth:
        if all(type(size) is int and 0 < size <= MAX_COUNT for size in spec):
            return tuple(spec)
        parts = tuple(plain_spec(one, depth - 1) for one in spec)
        return None if None in parts else parts
    return None
