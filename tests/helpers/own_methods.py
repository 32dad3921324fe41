"""Training methods as users write them, and a task with an objective of its own."""

from typing import Any

import jax
import jax.numpy as jnp

from jaxtrain import keys, own
from jaxtrain.tasks.classification import Classification
from jaxtrain.training.attacks import Attack
from jaxtrain.training.methods.base import Method
from jaxtrain.training.methods.plain import Plain

HERE = "tests.helpers.own_methods"
ADVERSARIAL = f"{HERE}:Adversarial"
CONSISTENT = f"{HERE}:Consistent"
BY_HAND = f"{HERE}:ByHand"
own.allow([ADVERSARIAL, BY_HAND, CONSISTENT])


def noise(index: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Return what `Consistent` adds to each image, a function of its number."""
    return 0.1 * jnp.sin(index.astype(float))[:, None, None, None] * jnp.ones(shape)


class Adversarial(Plain):
    """Trains on what PGD, by the l2 norm, makes of the images."""

    def __init__(self, epsilon: float = 0.5, steps: int = 2):
        self.attack = Attack(name="pgd", norm="l2", epsilon=epsilon, steps=steps)

    def gradients(
        self, objective: Any, params: Any, model_state: Any, batch: Any, key: Any
    ) -> Any:
        image = batch["image"]
        mean, std = (jnp.asarray(x, image.dtype) for x in objective.normalization)

        def changed(pixels: jax.Array) -> Any:
            return {**batch, "image": (pixels - mean) / std}

        def losses(pixels: jax.Array) -> jax.Array:
            return objective.losses(params, model_state, changed(pixels), key)[0]

        each = keys.of_examples(key, batch["index"])
        pixels = self.attack(losses, image * std + mean, each)
        return super().gradients(objective, params, model_state, changed(pixels), key)


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
        losses, metrics = self.losses_and_metrics(outputs, batch["target"])
        apart = jnp.square(outputs - other).mean(-1)
        return losses + apart, {**metrics, "apart": apart.mean()}, model_state
