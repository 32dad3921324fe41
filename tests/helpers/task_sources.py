"""A source for each task, of 24 images of 16x16x1, and a model that learns it."""

from typing import Any

import numpy as np

from jaxtrain import own
from jaxtrain.config import AugmentConfig, ConvNetConfig, DataConfig, ModelConfig
from jaxtrain.data import boxes, columns
from jaxtrain.data.pixel_classes import PIXEL_CLASSES
from jaxtrain.data.stores import ArrayStore
from tests.helpers.parts import model_config

NUM, SIDE = 24, 16
HERE = "tests.helpers.task_sources"
CONVNET = ConvNetConfig(name="convnet", width=0.125)
UNET = model_config("unet", backbone="convnet", width=0.125)
FCOS = model_config(
    "fcos", backbone="convnet", width=0.125, pyramid_channels=8, head_layers=1
)
# Task -> its options, its source and its model.
SETTINGS: dict[str, tuple[dict[str, Any], str, ModelConfig]] = {
    "classification": ({}, "classes", CONVNET),
    "regression": ({}, "numbers", CONVNET),
    "multilabel": ({}, "labels", CONVNET),
    "segmentation": ({}, "masks", UNET),
    "detection": ({"strides": "4", "keep": 4}, "things", FCOS),
    "embedding": ({"size": 8}, "classes", CONVNET),
    "self_supervised": ({"size": 8, "projection_size": 4}, "classes", CONVNET),
}
# Task -> fields of its section of the data that it asks for.
ASKED: dict[str, dict[str, Any]] = {
    "self_supervised": {"repeats": 2, "augment": AugmentConfig(crop_padding=1)}
}


def data_of(task: str) -> DataConfig:
    """Return the section of the data of a task."""
    source = f"{HERE}:{SETTINGS[task][1]}"
    asked = ASKED.get(task, {})
    return DataConfig(source=source, batch_size=8, validation_fraction=0.0, **asked)


def _made(target: Any, facts: dict[str, Any]) -> Any:
    images = np.random.default_rng(0).integers(0, 256, (NUM, SIDE, SIDE, 1), np.uint8)
    return ArrayStore(images, target, facts), {
        "train": [np.arange(16)],
        "test": [np.arange(16, NUM)],
    }


def classes() -> Any:
    return _made(np.arange(NUM, dtype=np.int32) % 4, {"num_classes": 4})


def numbers() -> Any:
    values = np.linspace(0, 1, NUM, dtype=np.float32)[:, None]
    return _made(values, {columns.NAMES: ("a",)})


def labels() -> Any:
    values = np.stack([np.arange(NUM) % 2, np.arange(NUM) // 2 % 2], 1)
    return _made(values.astype(np.float32), {columns.NAMES: ("a", "b")})


def masks() -> Any:
    pixels = np.zeros((NUM, SIDE, SIDE), np.uint8)
    pixels[:, 4:9, 4:9] = 1
    return _made(pixels, {PIXEL_CLASSES: ("a", "b")})


def things() -> Any:
    target = {
        "boxes": np.tile(np.array([[2, 3, 12, 13]], np.float32), (NUM, 1, 1)),
        "classes": np.arange(NUM, dtype=np.int32)[:, None] % 2,
        "crowd": np.zeros((NUM, 1), bool),
        "size": np.full((NUM, 2), SIDE, np.int32),
    }
    return _made(target, {boxes.NAMES: ("a", "b"), boxes.NUM_BOXES: 1})


own.allow([f"{HERE}:{source}" for _, source, _ in SETTINGS.values()])
