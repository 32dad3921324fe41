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
    from jaxtrain.config.classification import ClassificationConfig
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
        shared_values,
        to_json,
        values_of,
    )
    from jaxtrain.config.log import LoggingConfig
    from jaxtrain.config.methods import PlainConfig, SamConfig
    from jaxtrain.config.model import ModelConfig
    from jaxtrain.config.multilabel import MultilabelConfig
    from jaxtrain.config.optimizer import OptimizerConfig
    from jaxtrain.config.parallel import MESH_AXES, ParallelConfig, Preset
    from jaxtrain.config.part import CustomConfig, Part
    from jaxtrain.config.recipe import CONFIG
    from jaxtrain.config.regression import RegressionConfig
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
    "ClassificationConfig": "classification",
    "Config": "root",
    "CustomConfig": "part",
    "DataConfig": "data",
    "LoggingConfig": "log",
    "MAX_COUNT": "base",
    "MAX_SECONDS": "base",
    "MESH_AXES": "parallel",
    "ModelConfig": "model",
    "MultilabelConfig": "multilabel",
    "ONE_OF": "root",
    "OptimizerConfig": "optimizer",
    "ParallelConfig": "parallel",
    "Part": "part",
    "PlainConfig": "methods",
    "Preset": "parallel",
    "RegressionConfig": "regression",
    "SamConfig": "methods",
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
    "ClassificationConfig",
    "Config",
    "CustomConfig",
    "DataConfig",
    "LoggingConfig",
    "ModelConfig",
    "MultilabelConfig",
    "OptimizerConfig",
    "ParallelConfig",
    "Part",
    "PlainConfig",
    "Preset",
    "RegressionConfig",
    "SamConfig",
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
    "shared_values",
    "to_json",
    "values_of",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_MODULES.get(name, 'fields')}")
    value = globals()[name] = getattr(module, name)
    return value
