"""Train convolutional networks with JAX."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxtrain.api import open_trainer
    from jaxtrain.api import train as train
    from jaxtrain.inference.load import load_model as load_model
    from jaxtrain.trainer.callback import Callback as Callback

    Trainer = open_trainer

__version__ = "0.2.0"

# Name -> module and attribute, loaded when it is asked for: `import jaxtrain` itself
# takes no time.
_PUBLIC = {
    "Callback": ("jaxtrain.trainer.callback", "Callback"),
    "Trainer": ("jaxtrain.api", "open_trainer"),
    "load_model": ("jaxtrain.inference.load", "load_model"),
    "train": ("jaxtrain.api", "train"),
}


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _PUBLIC[name]
    return getattr(importlib.import_module(module), attribute)
