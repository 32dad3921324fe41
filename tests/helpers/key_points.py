"""A bright dot on each image, and a task that learns where it is."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrain.data.augment.geometry import Flip, Geometry
from jaxtrain.data.batch import Batch
from jaxtrain.data.stores import ArrayStore
from jaxtrain.tasks.base import Task


def dots(num: int = 96, height: int = 20, width: int = 24) -> Any:
    """Return dark images with one dot of 3x3 pixels, and the (x, y) of its centre."""
    rng = np.random.default_rng(0)
    corner = rng.integers(1, (width - 4, height - 4), (num, 2))
    image = np.zeros((num, height, width, 1), np.uint8)
    for one, (left, top) in zip(image, corner, strict=True):
        one[top : top + 3, left : left + 3] = [[[120]], [[240]], [[120]]]
        one[top + 1, left + 1] = 255
    train, test = np.split(np.arange(num), [num * 3 // 4])
    store = ArrayStore(image, corner.astype(np.float32) + 1.5, {})
    return store, {"train": [train], "test": [test]}


def where(key: jax.Array, shape: tuple[int, int]) -> Geometry:
    return Flip(jax.random.bernoulli(key), shape, dim=1)


def mirror(key: jax.Array, image: jax.Array, fill: jax.Array) -> jax.Array:
    return where(key, (image.shape[0], image.shape[1])).pixels(image)


def flagged(key: jax.Array, image: jax.Array, fill: jax.Array) -> jax.Array:
    return image


def wrong(key: jax.Array, image: jax.Array, fill: jax.Array) -> jax.Array:
    return image


mirror.moves, flagged.moves, wrong.moves = where, True, lambda key, shape: shape  # pyright: ignore[reportFunctionMemberAccess]


class KeyPoint(Task):
    """Learns the place of the dot, in parts of the image; none where it is outside."""

    num_outputs = 2
    target_changes = (Geometry,)

    def __init__(self, image_shape: tuple[int, int, int], facts: Mapping[str, Any]):
        del image_shape, facts

    def target(self, batch: Batch) -> jax.Array:
        height, width = batch["image"].shape[1:3]
        return batch["target"] / jnp.array([width, height])

    def transform_target(self, target: Any, change: Geometry) -> Any:
        return change.points(target)

    def loss(self, outputs: Any, target: Any, *, training: bool) -> jax.Array:
        inside = jnp.all((target >= 0) & (target < 1), -1)
        error = jnp.sum(jnp.square(outputs.astype(jnp.float32) - target), -1)
        return jnp.where(inside, error, 0)
