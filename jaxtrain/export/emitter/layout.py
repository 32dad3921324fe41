"""The orders in which the dims of an array may lie."""

from typing import Any

from jaxtrain.export.emitter.graph import Shape

# Dim i of the array in ONNX is dim order[i] of the node.
Order = tuple[int, ...]


def straight(rank: int) -> Order:
    """Return the order of JAX."""
    return tuple(range(rank))


def channels_first(rank: int) -> Order:
    """Return the order of ONNX's images."""
    return (0, rank - 1, *range(1, rank - 1))


def filled(shape: Shape, order: Order) -> list[int]:
    """Return the dims in an order, without those of size 1: how numbers lie."""
    return [d for d in order if not is_unit(shape[d])]


def is_unit(size: Any) -> bool:
    """Return whether a dim is 1, which a symbolic one may not be taken for."""
    return isinstance(size, int) and size == 1
