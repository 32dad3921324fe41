"""Runs that metric writers are made for, without training."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from jaxtrain.config import (
    Config,
    ConvNetConfig,
    DataConfig,
    LoggingConfig,
    SGDConfig,
    TrainConfig,
)
from jaxtrain.records.writer import LoggedRun


def logged_run(workdir: Path, *, step: int = 0, **sections: Any) -> LoggedRun:
    """Return a run of 12 steps, 4 an epoch, whose config has these sections."""
    config = Config(
        data=DataConfig(source="digits", batch_size=64),
        model=ConvNetConfig(name="convnet"),
        optimizer=SGDConfig(learning_rate=0.1),
        **{
            "train": TrainConfig(steps=12),
            "logging": LoggingConfig(tensorboard=False),
            **sections,
        },
    )
    return LoggedRun(
        workdir=workdir,
        config=config,
        step=step,
        total_steps=12,
        epoch=lambda step: step / 4,
        task=SimpleNamespace(shown=(), pictures=None),  # pyright: ignore
    )
