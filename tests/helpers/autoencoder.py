"""A second task, of a user's own: the model learns to put out what it is shown."""

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrain.data.augment.geometry import Geometry
from jaxtrain.dtypes import widen
from jaxtrain.tasks.base import Task
from jaxtrain.tasks.metrics import Metric


class AutoEncoder(Task):
    """The model puts out the image that it was shown, as it was augmented."""

    best_metric = "rmse"
    shown = ("rmse",)

    def __init__(self, image_shape: tuple[int, int, int], facts: Mapping[str, Any]):
        self.num_outputs = math.prod(image_shape)

    def target(self, batch: dict[str, Any]) -> dict[str, jax.Array]:
        image = batch["image"]
        return {"pixels": image.reshape(image.shape[0], -1)}

    def loss(self, outputs: jax.Array, target: Any, *, training: bool) -> jax.Array:
        return jnp.mean(_squares(outputs, target), axis=-1)

    def train_metrics(self, outputs: jax.Array, target: Any) -> dict[str, jax.Array]:
        error = jnp.sqrt(jnp.mean(_squares(outputs, target)))
        return {"rmse": error.astype(jnp.float32)}

    def metrics(self) -> dict[str, Metric]:
        return METRICS


class Followed(AutoEncoder):
    """Its stored targets have pixels, which would follow those of the images."""

    target_changes = (Geometry,)

    def transform_target(self, target: Any, change: Geometry) -> Any:
        return change.pixels(target)


def _squares(outputs: jax.Array, target: Any) -> jax.Array:
    return jnp.square(widen(outputs) - widen(target["pixels"]))


def errors(outputs: jax.Array, target: Any, mask: jax.Array) -> jax.Array:
    """Sum the squared error of each pixel."""
    return jnp.sum(_squares(outputs, target) * mask[:, None], axis=0)


def rmse(total: np.ndarray, num_examples: int) -> float:
    return float(np.sqrt(total.mean() / num_examples))


def of_pixels(total: np.ndarray, num_examples: int) -> list[float]:
    return (total / num_examples).tolist()


METRICS = {
    "rmse": Metric(errors, rmse, "lower"),
    "pixel_errors": Metric(errors, of_pixels),
}
