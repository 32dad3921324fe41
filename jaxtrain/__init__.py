"""Train convolutional networks with JAX."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxtrain.api import train as train
    from jaxtrain.inference.load import load_model as load_model

__version__ = "0.2.0"

# What users import from here -> the module that has it, loaded when it is asked for:
# `import jaxtrain` itself takes no time.
_PUBLIC = {"load_model": "jaxtrain.inference.load", "train": "jaxtrain.api"}


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_PUBLIC[name]), name)
