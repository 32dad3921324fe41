"""Training methods as users write them, and a task with an objective of its own."""

from typing import Any

import jax
import jax.numpy as jnp

from jaxtrain import own
from jaxtrain.tasks.classification import Classification
from jaxtrain.tasks.training_losses import losses_and_metrics
from jaxtrain.training.methods.base import Method

HERE = "tests.helpers.own_methods"
CONSISTENT = f"{HERE}:Consistent"
BY_HAND = f"{HERE}:ByHand"
own.allow([BY_HAND, CONSISTENT])


def noise(index: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Return what `Consistent` adds to each image, a function of its number."""
    return 0.1 * jnp.sin(index.astype(float))[:, None, None, None] * jnp.ones(shape)


class ByHand(Method):
    """Computes what the plain method does, from the losses of the examples."""

    def gradients(
        self, objective: Any, params: Any, model_state: Any, batch: Any, key: Any
    ) -> Any:
        def scaled(params: Any) -> Any:
            losses, *others = objective.losses(params, model_state, batch, key)
            return losses.mean() * objective.scale, (losses.mean(), *others)

        grads, (loss, metrics, state) = jax.grad(scaled, has_aux=True)(params)
        return grads, state, {**metrics, "loss": loss}


class Consistent(Classification):
    """Has the outputs of an image and of the same with noise differ by little."""

    def objective(self, forward: Any, batch: Any, key: Any) -> Any:
        image = batch["image"]
        outputs, model_state = forward(image, key)
        other, _ = forward(image + noise(batch["index"], image.shape), key)
        losses, metrics = losses_and_metrics(self, outputs, batch["target"])
        apart = jnp.square(outputs - other).mean(-1)
        return losses + apart, {**metrics, "apart": apart.mean()}, model_state
