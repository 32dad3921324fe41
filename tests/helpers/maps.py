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
from jaxtrain.tasks.base import Task
from jaxtrain.tasks.metrics import Metric

HERE = "tests.helpers.maps"
SHAPES, PIXELS = f"{HERE}:shapes", f"{HERE}:Pixels"
own.allow([SHAPES, PIXELS])
CLASSES = 3


def shapes(num: int = 64, size: int = 32) -> Any:
    """Return noise with a disc and a square in it, and the class of each pixel."""
    rng = np.random.default_rng(0)
    rows, columns = np.mgrid[:size, :size]
    mask = np.zeros((num, size, size), np.uint8)
    for one in mask:
        y, x, v, u = rng.integers(6, size - 6, 4)
        one[(rows - y) ** 2 + (columns - x) ** 2 < 30] = 1
        one[np.maximum(abs(rows - v), abs(columns - u)) < 5] = 2
    colour = rng.integers(0, 100, (*mask.shape, 3)) + 70 * (mask > 0)[..., None]
    train, test = np.split(np.arange(num), [num * 3 // 4])
    store = ArrayStore(colour.astype(np.uint8), mask, {})
    return store, {"train": [train], "test": [test]}


class Pixels(Task):
    """Learns the class of each pixel."""

    best_metric = "pixel_accuracy"

    def __init__(self, image_shape: tuple[int, int, int], facts: Mapping[str, Any]):
        self.output_spec = (*image_shape[:2], CLASSES)

    def target(self, batch: Batch) -> jax.Array:
        return batch["target"].astype(jnp.int32)

    def follow(self, target: Any, geometry: Geometry) -> Any:
        return geometry.pixels(target)

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
