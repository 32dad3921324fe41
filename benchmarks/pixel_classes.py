"""A task of maps that needs no data set: its images have one class each."""

from typing import Any

import jax
import jax.numpy as jnp

from jaxtrain.tasks.base import Task


class PixelClasses(Task):
    """Learns to say of each pixel the class of the image."""

    def __init__(self, image_shape: tuple[int, int, int], facts: Any):
        self.output_spec = (*image_shape[:2], facts["num_classes"])

    def loss(self, outputs: jax.Array, target: Any, *, training: bool) -> jax.Array:
        log_probabilities = jax.nn.log_softmax(outputs)
        true = jax.nn.one_hot(target, outputs.shape[-1])[:, None, None]
        return -jnp.mean(jnp.sum(true * log_probabilities, -1), (1, 2))
