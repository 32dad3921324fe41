"""Trained weights: `load` finds them, `transfer` puts them into a model."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxtrain.weights.adapt import transfer as transfer
    from jaxtrain.weights.resolve import load as load

# Loaded when they are asked for: names of arrays need neither.
_PUBLIC = {"load": "jaxtrain.weights.resolve", "transfer": "jaxtrain.weights.adapt"}


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_PUBLIC[name]), name)
