"""Training methods with all that may stand beside them."""

import dataclasses
import functools
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxtrain import config as config_lib
from jaxtrain.config import Config
from jaxtrain.config.optimizer import OPTIMIZERS
from jaxtrain.config.part import METHODS, TASKS, make_part
from jaxtrain.data import boxes, columns
from jaxtrain.data.pixel_classes import PIXEL_CLASSES
from jaxtrain.errors import UserError
from jaxtrain.tasks.build import build_task
from jaxtrain.training.methods.build import build_method

# Options without which a method is refused.
METHOD_OPTIONS: dict[str, dict[str, Any]] = {
    "distillation": {"teacher": "runs/teacher"}
}
IMAGE_SHAPE = (32, 32, 3)
# What data sets for these tasks say of themselves.
FACTS: dict[str, dict[str, Any]] = {
    "regression": {
        columns.NAMES: ("a",),
        "training_targets": lambda: np.arange(4, dtype=np.float32)[:, None],
    },
    "multilabel": {
        columns.NAMES: ("a", "b"),
        "training_targets": lambda: np.eye(2, dtype=np.float32),
    },
    "segmentation": {PIXEL_CLASSES: ("a", "b")},
    "detection": {boxes.NAMES: ("a", "b"), boxes.NUM_BOXES: 4},
}
CLASSES = {"num_classes": 4}


def config_of(method: str, changes: Mapping[str, Any]) -> Config:
    """Return a config with a method and what stands beside it.

    Raises:
      UserError: They do not go together.
    """
    given = dict(changes)
    task = given.pop("task", "classification")
    parts = {
        "task": make_part(TASKS, task),
        "optimizer": make_part(OPTIMIZERS, given.pop("optimizer.name", "sgd")),
        "method": make_part(METHODS, method, METHOD_OPTIONS.get(method, {})),
    }
    tree = dataclasses.asdict(dataclasses.replace(Config(), **parts))
    for path, value in given.items():
        *sections, name = path.split(".")
        functools.reduce(dict.__getitem__, sections, tree)[name] = value
    return config_lib.from_json(json.dumps(tree))


def refusal(method: str, changes: Mapping[str, Any]) -> str | None:
    """Return why a method does not go with something; None: it does."""
    try:
        config = config_of(method, changes)
        facts = FACTS.get(config.task.name, CLASSES)
        task = build_task(config, IMAGE_SHAPE, facts)
        build_method(config.method).check(task, config.task.name)
    except UserError as error:
        return str(error)
    return None
