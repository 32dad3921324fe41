"""Config schema of a run: frozen dataclasses, validated on construction.

`get_config()` in `configs/NAME.py` returns a `Config`; command-line overrides change a
copy. Task, method, model, optimizer and schedule are parts (`Part`): the name of an
implementation, with its options. `None` means "not set".
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
    from jaxtrain.config.model import CustomModelConfig, ModelConfig
    from jaxtrain.config.models import (
        ConvNetConfig,
        ConvNeXtConfig,
        DenseNetConfig,
        EfficientNetConfig,
        InceptionConfig,
        LeNetConfig,
        MobileNetConfig,
        RegNetConfig,
        ResNetConfig,
        VGGConfig,
        WhitenedCNNConfig,
        WideResNetConfig,
    )
    from jaxtrain.config.multilabel import MultilabelConfig
    from jaxtrain.config.optimizer import CustomOptimizerConfig, OptimizerConfig
    from jaxtrain.config.optimizers import (
        AdagradConfig,
        AdamConfig,
        AdamWConfig,
        AdanConfig,
        AdEMAMixConfig,
        AdoptConfig,
        DAdaptAdamWConfig,
        LambConfig,
        LarsConfig,
        LBFGSConfig,
        LionConfig,
        MuonConfig,
        ProdigyConfig,
        RMSpropConfig,
        ScheduleFreeAdamWConfig,
        ScheduleFreeSGDConfig,
        SGDConfig,
        SGDWConfig,
    )
    from jaxtrain.config.parallel import MESH_AXES, ParallelConfig, Preset
    from jaxtrain.config.part import CustomConfig, Part
    from jaxtrain.config.recipe import CONFIG
    from jaxtrain.config.regression import RegressionConfig
    from jaxtrain.config.root import ONE_OF, Config
    from jaxtrain.config.schedule import (
        ConstantSchedule,
        CosineRestartsSchedule,
        CosineSchedule,
        CustomSchedule,
        ExponentialSchedule,
        LinearSchedule,
        OneCycleSchedule,
        PlateauSchedule,
        PolynomialSchedule,
        ScheduleConfig,
        StepSchedule,
        WarmupStableDecaySchedule,
    )
    from jaxtrain.config.sound import SoundConfig
    from jaxtrain.config.train import TrainConfig

# Name -> module, imported on first access, so that importing one section loads neither
# the other sections nor the plug-ins. Names without an entry are in `config/fields.py`.
_MODULES = {
    "AdEMAMixConfig": "optimizers",
    "AdagradConfig": "optimizers",
    "AdamConfig": "optimizers",
    "AdamWConfig": "optimizers",
    "AdanConfig": "optimizers",
    "AdoptConfig": "optimizers",
    "AugmentConfig": "augment",
    "CONFIG": "recipe",
    "CROP_MODE": "data_combinations",
    "CheckpointConfig": "checkpoint",
    "ClassificationConfig": "classification",
    "Config": "root",
    "ConstantSchedule": "schedule",
    "ConvNeXtConfig": "models",
    "ConvNetConfig": "models",
    "CosineRestartsSchedule": "schedule",
    "CosineSchedule": "schedule",
    "CustomConfig": "part",
    "CustomModelConfig": "model",
    "CustomOptimizerConfig": "optimizer",
    "CustomSchedule": "schedule",
    "DAdaptAdamWConfig": "optimizers",
    "DataConfig": "data",
    "DenseNetConfig": "models",
    "EfficientNetConfig": "models",
    "ExponentialSchedule": "schedule",
    "InceptionConfig": "models",
    "LBFGSConfig": "optimizers",
    "LambConfig": "optimizers",
    "LarsConfig": "optimizers",
    "LeNetConfig": "models",
    "LinearSchedule": "schedule",
    "LionConfig": "optimizers",
    "LoggingConfig": "log",
    "MAX_COUNT": "base",
    "MAX_SECONDS": "base",
    "MESH_AXES": "parallel",
    "MobileNetConfig": "models",
    "ModelConfig": "model",
    "MultilabelConfig": "multilabel",
    "MuonConfig": "optimizers",
    "ONE_OF": "root",
    "OneCycleSchedule": "schedule",
    "OptimizerConfig": "optimizer",
    "ParallelConfig": "parallel",
    "Part": "part",
    "PlainConfig": "methods",
    "PlateauSchedule": "schedule",
    "PolynomialSchedule": "schedule",
    "Preset": "parallel",
    "ProdigyConfig": "optimizers",
    "RMSpropConfig": "optimizers",
    "RegNetConfig": "models",
    "RegressionConfig": "regression",
    "ResNetConfig": "models",
    "SGDConfig": "optimizers",
    "SGDWConfig": "optimizers",
    "SamConfig": "methods",
    "ScheduleConfig": "schedule",
    "ScheduleFreeAdamWConfig": "optimizers",
    "ScheduleFreeSGDConfig": "optimizers",
    "SoundConfig": "sound",
    "StepSchedule": "schedule",
    "TrainConfig": "train",
    "VGGConfig": "models",
    "WarmupStableDecaySchedule": "schedule",
    "WhitenedCNNConfig": "models",
    "WideResNetConfig": "models",
}

# Classes of a config: its sections and parts.
CLASSES = tuple(name for name in _MODULES if name.endswith(("Config", "Schedule")))

__all__ = [
    "CONFIG",
    "CROP_MODE",
    "MAX_COUNT",
    "MAX_SECONDS",
    "MESH_AXES",
    "ONE_OF",
    "AdEMAMixConfig",
    "AdagradConfig",
    "AdamConfig",
    "AdamWConfig",
    "AdanConfig",
    "AdoptConfig",
    "AugmentConfig",
    "CheckpointConfig",
    "ClassificationConfig",
    "Config",
    "ConstantSchedule",
    "ConvNeXtConfig",
    "ConvNetConfig",
    "CosineRestartsSchedule",
    "CosineSchedule",
    "CustomConfig",
    "CustomModelConfig",
    "CustomOptimizerConfig",
    "CustomSchedule",
    "DAdaptAdamWConfig",
    "DataConfig",
    "DenseNetConfig",
    "EfficientNetConfig",
    "ExponentialSchedule",
    "InceptionConfig",
    "LBFGSConfig",
    "LambConfig",
    "LarsConfig",
    "LeNetConfig",
    "LinearSchedule",
    "LionConfig",
    "LoggingConfig",
    "MobileNetConfig",
    "ModelConfig",
    "MultilabelConfig",
    "MuonConfig",
    "OneCycleSchedule",
    "OptimizerConfig",
    "ParallelConfig",
    "Part",
    "PlainConfig",
    "PlateauSchedule",
    "PolynomialSchedule",
    "Preset",
    "ProdigyConfig",
    "RMSpropConfig",
    "RegNetConfig",
    "RegressionConfig",
    "ResNetConfig",
    "SGDConfig",
    "SGDWConfig",
    "SamConfig",
    "ScheduleConfig",
    "ScheduleFreeAdamWConfig",
    "ScheduleFreeSGDConfig",
    "SoundConfig",
    "StepSchedule",
    "TrainConfig",
    "VGGConfig",
    "WarmupStableDecaySchedule",
    "WhitenedCNNConfig",
    "WideResNetConfig",
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
