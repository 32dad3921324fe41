"""TRADES: trade-off between clean accuracy and robustness.

Zhang et al. 2019, "Theoretically principled trade-off between robustness and accuracy",
arXiv:1901.08573.
"""

import dataclasses
from typing import Any

import jax

from jaxtrain import keys
from jaxtrain.data.batch import Batch
from jaxtrain.errors import UserError
from jaxtrain.models.auxiliary import main_outputs
from jaxtrain.plugins.adversarial.attacks import Ball, Pgd
from jaxtrain.plugins.adversarial.options import TradesConfig
from jaxtrain.tasks.base import Task, defines
from jaxtrain.tasks.losses import kl_divergence
from jaxtrain.tasks.training_losses import losses_and_metrics
from jaxtrain.training.methods.base import Gradients, Metrics, Objective
from jaxtrain.training.methods.plain import Plain

# Standard deviation of the attack's initial noise, for pixels in 0..1. Without noise,
# the KL divergence and its gradient are 0.
START_DEVIATION = 0.001


class Trades(Plain):
    """TRADES: the loss of clean images plus beta times a KL divergence.

    The attack maximizes the KL divergence between the outputs of clean and of attacked
    images. The model is attacked in evaluation mode, and clean images update the
    running mean and variance of batch norms, as in the paper's code. Gradients flow
    through both outputs.
    """

    Options = TradesConfig

    def __init__(self, **given: Any):
        options = TradesConfig(**given)
        ball = Ball(epsilon=options.epsilon, norm=options.norm)
        size = options.step_size
        self.attack = Pgd(ball=ball, steps=options.steps, step_size=size)
        self._beta = options.beta

    def check(self, task: Task, name: str) -> None:
        if defines(task, "objective") or not task.one_class_an_image:
            raise UserError(
                "method = 'trades' requires class probabilities of images, which task "
                f"= {name!r} does not predict: set method = 'adversarial'"
            )

    def gradients(self, objective: Objective, params: Any, *given: Any) -> Gradients:
        images = self._attacked(objective, params, *given)
        task = objective.task

        def losses(
            params: Any, model_state: Any, batch: Batch, key: jax.Array
        ) -> tuple[jax.Array, Metrics, Any]:
            given = params, model_state
            outputs, after = objective.forward(*given, batch["image"], key)
            other, _ = objective.forward(*given, images, key)
            clean, metrics = losses_and_metrics(task, outputs, task.target(batch))
            apart = kl_divergence(main_outputs(outputs), main_outputs(other))
            metrics = {
                **metrics,
                "clean_loss": clean.mean(),
                "divergence": apart.mean(),
            }
            return clean + self._beta * apart, metrics, after

        lowered = dataclasses.replace(objective, losses=losses)
        return super().gradients(lowered, params, *given)

    def _attacked(
        self,
        objective: Objective,
        params: Any,
        model_state: Any,
        batch: Batch,
        key: jax.Array,
    ) -> jax.Array:
        """Return adversarial images that increase the KL divergence."""

        def outputs_of(images: jax.Array) -> jax.Array:
            given = params, model_state, images, key
            return main_outputs(objective.forward(*given, training=False)[0])

        outputs = outputs_of(batch["image"])

        def apart(pixels: jax.Array) -> jax.Array:
            return kl_divergence(outputs, outputs_of(objective.normalized(pixels)))

        pixels = objective.pixels(batch["image"])
        each = keys.example_keys(key, batch["index"])
        start = pixels + START_DEVIATION * _noise(pixels, each)
        return objective.normalized(self.attack(apart, pixels, start))


def _noise(pixels: jax.Array, keys: jax.Array) -> jax.Array:
    """Draw standard normal noise for each image."""

    def of_image(key: jax.Array) -> jax.Array:
        return jax.random.normal(key, pixels.shape[1:], pixels.dtype)

    return jax.vmap(of_image)(keys)
