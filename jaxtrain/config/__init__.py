"""The only schema of a run: frozen dataclasses, validated when they are made.

A file `configs/NAME.py` returns a `Config`; command-line overrides make a new one.
`None` means "not set": the default of the model, optimizer or schedule then holds, and
setting an option that the chosen one does not take is an error.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxtrain.config.augment import AugmentConfig
    from jaxtrain.config.base import MAX_COUNT, MAX_SECONDS
    from jaxtrain.config.checkpoint import CheckpointConfig
    from jaxtrain.config.data import DataConfig
    from jaxtrain.config.fields import (
        MAY_CHANGE_ON_RESUME,
        allow_own,
        changed_paths,
        check_own,
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
    from jaxtrain.config.root import ONE_OF, Config
    from jaxtrain.config.sound import SoundConfig
    from jaxtrain.config.train import TrainConfig

# Module -> the names that it has, imported when one is asked for: a section alone reads
# neither the others nor the plug-ins.
_MODULES = {
    "augment": ["AugmentConfig"],
    "base": ["MAX_COUNT", "MAX_SECONDS"],
    "checkpoint": ["CheckpointConfig"],
    "data": ["DataConfig"],
    "fields": [
        "MAY_CHANGE_ON_RESUME",
        "allow_own",
        "changed_paths",
        "check_own",
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
    ],
    "log": ["LoggingConfig"],
    "model": ["ModelConfig"],
    "optimizer": ["OptimizerConfig"],
    "parallel": ["MESH_AXES", "ParallelConfig", "Preset"],
    "root": ["ONE_OF", "Config"],
    "sound": ["SoundConfig"],
    "train": ["TrainConfig"],
}
_PLACES = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "MAX_COUNT",
    "MAX_SECONDS",
    "MAY_CHANGE_ON_RESUME",
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
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_PLACES[name]}")
    value = globals()[name] = getattr(module, name)
    return value
