"""Train convolutional networks with JAX.

The public API is `__all__`; docs/api.md describes it.
"""

import importlib
from typing import TYPE_CHECKING, Any

from jaxtrain.config import CLASSES

if TYPE_CHECKING:
    from jaxtrain.api import evaluate as evaluate, open_trainer, train as train
    from jaxtrain.config import (
        AdagradConfig as AdagradConfig,
        AdamConfig as AdamConfig,
        AdamWConfig as AdamWConfig,
        AdanConfig as AdanConfig,
        AdEMAMixConfig as AdEMAMixConfig,
        AdoptConfig as AdoptConfig,
        AugmentConfig as AugmentConfig,
        CheckpointConfig as CheckpointConfig,
        ClassificationConfig as ClassificationConfig,
        ConstantSchedule as ConstantSchedule,
        ConvNetConfig as ConvNetConfig,
        ConvNeXtConfig as ConvNeXtConfig,
        CosineRestartsSchedule as CosineRestartsSchedule,
        CosineSchedule as CosineSchedule,
        CustomConfig as CustomConfig,
        CustomModelConfig as CustomModelConfig,
        CustomOptimizerConfig as CustomOptimizerConfig,
        CustomSchedule as CustomSchedule,
        DAdaptAdamWConfig as DAdaptAdamWConfig,
        DataConfig as DataConfig,
        DenseNetConfig as DenseNetConfig,
        EfficientNetConfig as EfficientNetConfig,
        ExponentialSchedule as ExponentialSchedule,
        InceptionConfig as InceptionConfig,
        LambConfig as LambConfig,
        LarsConfig as LarsConfig,
        LBFGSConfig as LBFGSConfig,
        LeNetConfig as LeNetConfig,
        LinearSchedule as LinearSchedule,
        LionConfig as LionConfig,
        LoggingConfig as LoggingConfig,
        MobileNetConfig as MobileNetConfig,
        ModelConfig as ModelConfig,
        MultilabelConfig as MultilabelConfig,
        MuonConfig as MuonConfig,
        OneCycleSchedule as OneCycleSchedule,
        OptimizerConfig as OptimizerConfig,
        ParallelConfig as ParallelConfig,
        PlainConfig as PlainConfig,
        PlateauSchedule as PlateauSchedule,
        PolynomialSchedule as PolynomialSchedule,
        ProdigyConfig as ProdigyConfig,
        RegNetConfig as RegNetConfig,
        RegressionConfig as RegressionConfig,
        ResNetConfig as ResNetConfig,
        RMSpropConfig as RMSpropConfig,
        SamConfig as SamConfig,
        ScheduleConfig as ScheduleConfig,
        ScheduleFreeAdamWConfig as ScheduleFreeAdamWConfig,
        ScheduleFreeSGDConfig as ScheduleFreeSGDConfig,
        SGDConfig as SGDConfig,
        SGDWConfig as SGDWConfig,
        SoundConfig as SoundConfig,
        StepSchedule as StepSchedule,
        TrainConfig as TrainConfig,
        VGGConfig as VGGConfig,
        WarmupStableDecaySchedule as WarmupStableDecaySchedule,
        WhitenedCNNConfig as WhitenedCNNConfig,
        WideResNetConfig as WideResNetConfig,
    )
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
} | {name: ("jaxtrain.config", name) for name in CLASSES}

__all__ = list(_PUBLIC)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _PUBLIC[name]
    return getattr(importlib.import_module(module), attribute)


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
