"""Training on attacked images at the price of plain training.

"Free" adversarial training: Shafahi et al. 2019, "Adversarial training for free!",
arXiv:1904.12843, algorithm 1.
"""

from typing import Any

import jax
import jax.numpy as jnp

from jaxtrain.config.methods import FreeOptions
from jaxtrain.data.batch import Batch
from jaxtrain.training.attacks import Ball, finite
from jaxtrain.training.methods.base import Memory, Method, Metrics, Objective


class Free(Method):
    """The gradients of the loss of changed images, which change the images further.

    One backward pass gives the gradients of the parameters and of the pixels. A step
    moves both, and the change of the pixels is kept: for the next steps of the same
    batch, of which `data.echo` says the number, and then as the start for the next
    batch. As the authors do, the model is in training mode, and running statistics are
    those of changed images.
    """

    Options = FreeOptions
    same_images = True

    def __init__(self, **given: Any):
        options = FreeOptions(**given)
        self._ball = Ball(epsilon=options.epsilon, norm=options.norm)
        size = options.step_size
        self._step_size = options.epsilon if size is None else size

    def memory(self, images: jax.ShapeDtypeStruct) -> Memory:
        return {"change": images}

    def step(
        self,
        objective: Objective,
        params: Any,
        model_state: Any,
        batch: Batch,
        key: jax.Array,
        memory: Memory,
    ) -> tuple[Any, Any, Metrics, Memory]:
        pixels, change = objective.pixels(batch["image"]), memory["change"]

        def lowered(params: Any, at: jax.Array) -> Any:
            changed = {**batch, "image": objective.normalized(at)}
            return objective(params, model_state, changed, key)

        differentiated = jax.value_and_grad(lowered, (0, 1), has_aux=True)
        at = jnp.clip(pixels + change, 0, 1)
        (_, (model_state, metrics)), (grads, rise) = differentiated(params, at)
        ahead = self._step_size * self._ball.direction(finite(rise))
        # Not cut to pixels in 0..1, as it is the start for other images, too.
        change = self._ball.shorten(change + ahead).astype(change.dtype)
        return grads, model_state, metrics, {"change": change}
