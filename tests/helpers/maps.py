"""Images with a disc and a square, and a task that learns the class of each pixel."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrain import own
from jaxtrain.data.augment.geometry import Geometry
from jaxtrain.data.batch import Batch
from jaxtrain.data.stores import ArrayStore
from jaxtrain.dtypes import widen
from jaxtrain.models.residual import BasicBlock
from jaxtrain.models.resnet import ResNet
from jaxtrain.tasks.base import Task
from jaxtrain.tasks.metrics import Metric
from tests.helpers.discs import CLASSES, discs

HERE = "tests.helpers.maps"
SHAPES, EIGHT, PIXELS = f"{HERE}:shapes", f"{HERE}:eight", f"{HERE}:Pixels"
FOUR_STAGES = f"{HERE}:FourStages"
own.allow([SHAPES, EIGHT, PIXELS, FOUR_STAGES])


def shapes(num: int = 64, size: int = 32) -> Any:
    """Return a store of images and masks, of which three quarters are to train on."""
    image, mask = discs(num, size)
    train, test = np.split(np.arange(num), [num * 3 // 4])
    return ArrayStore(image, mask, {}), {"train": [train], "test": [test]}


def eight() -> Any:
    """Return eight images of 33 pixels, four of them to train on."""
    image, mask = discs(8, 33)
    train, test = np.split(np.arange(8), [4])
    return ArrayStore(image, mask, {}), {"train": [train], "test": [test]}


class FourStages(ResNet):
    """A ResNet of six blocks: what dilates needs four stages."""

    block = BasicBlock
    depths = (1, 1, 2, 2)


class Pixels(Task):
    """Learns the class of each pixel."""

    best_metric = "pixel_accuracy"
    target_changes = (Geometry,)

    def __init__(self, image_shape: tuple[int, int, int], facts: Mapping[str, Any]):
        self.output_spec = (*image_shape[:2], CLASSES)

    def target(self, batch: Batch) -> jax.Array:
        return batch["target"].astype(jnp.int32)

    def transform_target(self, target: Any, change: Geometry) -> Any:
        return change.pixels(target)

    def loss(self, outputs: jax.Array, target: Any, *, training: bool) -> jax.Array:
        log_probabilities = jax.nn.log_softmax(widen(outputs))
        true = jax.nn.one_hot(target, CLASSES, dtype=log_probabilities.dtype)
        return -jnp.mean(jnp.sum(true * log_probabilities, -1), (1, 2))

    def metrics(self) -> dict[str, Metric]:
        return {"pixel_accuracy": Metric(right, share, "higher")}


def right(outputs: jax.Array, target: Any, mask: jax.Array) -> jax.Array:
    """Return the share of pixels that are right, summed over images."""
    is_right = (outputs.argmax(-1) == target).mean((1, 2), dtype=jnp.float32)
    return jnp.sum(is_right * mask)


def share(total: np.ndarray, num_examples: int) -> float:
    return float(total / num_examples)
