"""Adversarial training: training on adversarially perturbed images.

Madry et al. 2018, arXiv:1706.06083; Wong et al. 2020, arXiv:2001.03994.
"""

from typing import Any

import jax

from jaxtrain import keys
from jaxtrain.data.batch import Batch
from jaxtrain.plugins.adversarial.attacks import Ball, Pgd
from jaxtrain.plugins.adversarial.options import AdversarialConfig
from jaxtrain.training.methods.base import Gradients, Objective
from jaxtrain.training.methods.plain import Plain

# Step size of FGSM, in units of epsilon (Wong et al. 2020).
FAST_STEP = 1.25


class Adversarial(Plain):
    """Training method that replaces the images of a batch with adversarial images.

    The attack starts at a random point of the norm ball around each image. With one
    step, the attack is FGSM as in Wong et al. 2020; with several steps, PGD. The model
    is attacked in training mode, as in the papers' code, and the adversarial images
    update the running mean and variance of batch norms.
    """

    Options = AdversarialConfig

    def __init__(self, **given: Any):
        options = AdversarialConfig(**given)
        size = options.step_size
        if size is None and options.steps == 1:
            size = FAST_STEP * options.epsilon
        ball = Ball(epsilon=options.epsilon, norm=options.norm)
        self.attack = Pgd(ball=ball, steps=options.steps, step_size=size)

    def gradients(self, objective: Objective, params: Any, *given: Any) -> Gradients:
        model_state, batch, key = given

        def changed(pixels: jax.Array) -> Batch:
            return {**batch, "image": objective.normalized(pixels)}

        def losses(pixels: jax.Array) -> jax.Array:
            attacked = params, model_state, changed(pixels), key
            return objective.losses(*attacked)[0]

        pixels = objective.pixels(batch["image"])
        each = keys.example_keys(key, batch["index"])
        pixels = self.attack(losses, pixels, self.attack.ball.draw(pixels, each))
        attacked = model_state, changed(pixels), key
        return super().gradients(objective, params, *attacked)
