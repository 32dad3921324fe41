"""Config schema of a run: frozen dataclasses, validated on construction.

A file `configs/NAME.py` returns a `Config`; command-line overrides make a new one.
`None` means "not set" and selects the default of the model, optimizer or schedule. It
is an error to set an option that the chosen model, optimizer or schedule does not take.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxtrain.config.augment import AugmentConfig
    from jaxtrain.config.base import MAX_COUNT, MAX_SECONDS
    from jaxtrain.config.checkpoint import CheckpointConfig
    from jaxtrain.config.data import DataConfig
    from jaxtrain.config.data_combinations import CROP_MODE
    from jaxtrain.config.fields import (
        allow_own,
        changed_paths,
        check_own,
        code_of_model,
        differences,
        from_json,
        get,
        own_parts,
        own_references,
        paths,
        read_config,
        replace,
        shared_paths,
        to_json,
    )
    from jaxtrain.config.log import LoggingConfig
    from jaxtrain.config.model import ModelConfig
    from jaxtrain.config.optimizer import OptimizerConfig
    from jaxtrain.config.parallel import MESH_AXES, ParallelConfig, Preset
    from jaxtrain.config.recipe import CONFIG
    from jaxtrain.config.root import ONE_OF, Config
    from jaxtrain.config.sound import SoundConfig
    from jaxtrain.config.train import TrainConfig

# Name -> module, imported on first access, so that importing one section loads neither
# the other sections nor the plug-ins. All other names are in `fields`.
_MODULES = {
    "AugmentConfig": "augment",
    "CONFIG": "recipe",
    "CROP_MODE": "data_combinations",
    "CheckpointConfig": "checkpoint",
    "Config": "root",
    "DataConfig": "data",
    "LoggingConfig": "log",
    "MAX_COUNT": "base",
    "MAX_SECONDS": "base",
    "MESH_AXES": "parallel",
    "ModelConfig": "model",
    "ONE_OF": "root",
    "OptimizerConfig": "optimizer",
    "ParallelConfig": "parallel",
    "Preset": "parallel",
    "SoundConfig": "sound",
    "TrainConfig": "train",
}

__all__ = [
    "CONFIG",
    "CROP_MODE",
    "MAX_COUNT",
    "MAX_SECONDS",
    "MESH_AXES",
    "ONE_OF",
    "AugmentConfig",
    "CheckpointConfig",
    "Config",
    "DataConfig",
    "LoggingConfig",
    "ModelConfig",
    "OptimizerConfig",
    "ParallelConfig",
    "Preset",
    "SoundConfig",
    "TrainConfig",
    "allow_own",
    "changed_paths",
    "check_own",
    "code_of_model",
    "differences",
    "from_json",
    "get",
    "own_parts",
    "own_references",
    "paths",
    "read_config",
    "replace",
    "shared_paths",
    "to_json",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_MODULES.get(name, 'fields')}")
    value = globals()[name] = getattr(module, name)
    return value
