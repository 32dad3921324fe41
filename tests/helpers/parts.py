"""Models and optimizers of a config by name."""

import dataclasses
from typing import Any

from jaxtrain.config import ModelConfig, OptimizerConfig
from jaxtrain.config.model import MODELS
from jaxtrain.config.optimizer import OPTIMIZERS
from jaxtrain.config.part import PartTable, make_part
from jaxtrain.config.schedule import SCHEDULES


def model_config(name: str, **values: Any) -> ModelConfig:
    """Return the config of a model, with options and fields of all models."""
    return _part(MODELS, name, values)


def optimizer_config(
    name: str = "sgd", schedule: str = "constant", **values: Any
) -> OptimizerConfig:
    """Return the config of an optimizer, with the options of its schedule, too."""
    known = make_part(SCHEDULES, schedule).option_names()
    options = {n: x for n, x in values.items() if n in known}
    others = {n: x for n, x in values.items() if n not in known}
    others["schedule"] = make_part(SCHEDULES, schedule, options)
    return _part(OPTIMIZERS, name, others)


def _part(table: PartTable, name: str, values: dict[str, Any]) -> Any:
    part = make_part(table, name)
    shared = {n: x for n, x in values.items() if n in (*part.shared_fields, "options")}
    options = {n: x for n, x in values.items() if n not in shared}
    return dataclasses.replace(part.updated(options), **shared)
