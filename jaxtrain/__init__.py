"""Train convolutional networks with JAX.

The public API is `__all__`; docs/api.md describes it.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxtrain.api import evaluate as evaluate
    from jaxtrain.api import open_trainer
    from jaxtrain.api import train as train
    from jaxtrain.config.augment import AugmentConfig as AugmentConfig
    from jaxtrain.config.checkpoint import CheckpointConfig as CheckpointConfig
    from jaxtrain.config.data import DataConfig as DataConfig
    from jaxtrain.config.log import LoggingConfig as LoggingConfig
    from jaxtrain.config.model import ModelConfig as ModelConfig
    from jaxtrain.config.optimizer import OptimizerConfig as OptimizerConfig
    from jaxtrain.config.parallel import ParallelConfig as ParallelConfig
    from jaxtrain.config.root import Config as Config
    from jaxtrain.config.sound import SoundConfig as SoundConfig
    from jaxtrain.config.train import TrainConfig as TrainConfig
    from jaxtrain.inference.load import load_model as load_model
    from jaxtrain.plugin import Plugin as Plugin
    from jaxtrain.tasks.base import Task as Task
    from jaxtrain.trainer.callback import Callback as Callback
    from jaxtrain.training.transforms.base import StepTransform as StepTransform

    Trainer = open_trainer

__version__ = "0.2.0"

# Name -> module and attribute, imported on first use to keep `import jaxtrain` fast.
_PUBLIC = {
    "train": ("jaxtrain.api", "train"),
    "evaluate": ("jaxtrain.api", "evaluate"),
    "load_model": ("jaxtrain.inference.load", "load_model"),
    "Trainer": ("jaxtrain.api", "open_trainer"),
    "Callback": ("jaxtrain.trainer.callback", "Callback"),
    "StepTransform": ("jaxtrain.training.transforms.base", "StepTransform"),
    "Task": ("jaxtrain.tasks.base", "Task"),
    "Plugin": ("jaxtrain.plugin", "Plugin"),
    "Config": ("jaxtrain.config", "Config"),
    "AugmentConfig": ("jaxtrain.config", "AugmentConfig"),
    "CheckpointConfig": ("jaxtrain.config", "CheckpointConfig"),
    "DataConfig": ("jaxtrain.config", "DataConfig"),
    "LoggingConfig": ("jaxtrain.config", "LoggingConfig"),
    "ModelConfig": ("jaxtrain.config", "ModelConfig"),
    "OptimizerConfig": ("jaxtrain.config", "OptimizerConfig"),
    "ParallelConfig": ("jaxtrain.config", "ParallelConfig"),
    "SoundConfig": ("jaxtrain.config", "SoundConfig"),
    "TrainConfig": ("jaxtrain.config", "TrainConfig"),
}

__all__ = list(_PUBLIC)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _PUBLIC[name]
    return getattr(importlib.import_module(module), attribute)


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
