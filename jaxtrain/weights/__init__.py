"""Trained weights: `load` opens them, and `transfer` initializes a model with them."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxtrain.weights.resolve import load, load_named
    from jaxtrain.weights.transfer_learning import compare, transfer

# Messages show this number of hex digits of a digest.
NUM_SHOWN = 12
# Name -> module, imported on first use, as most runs have no pretrained weights.
_MODULES = {
    "compare": "transfer_learning",
    "load": "resolve",
    "load_named": "resolve",
    "transfer": "transfer_learning",
}
__all__ = ["NUM_SHOWN", "compare", "load", "load_named", "transfer"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
