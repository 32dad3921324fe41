"""Trained weights: `load` finds them, `transfer` puts them into a model."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxtrain.weights.adapt import transfer as transfer
    from jaxtrain.weights.resolve import load as load


def __getattr__(name: str) -> Any:
    # Loaded when they are asked for: names of arrays need neither.
    if name == "load":
        from jaxtrain.weights.resolve import load

        return load
    if name == "transfer":
        from jaxtrain.weights.adapt import transfer

        return transfer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
