"""Sharpness-aware minimization.

SAM (Foret et al. 2021, arXiv:2010.01412) and ASAM (Kwon et al. 2021, arXiv:2102.11600).
"""

from typing import Any

import jax
import jax.numpy as jnp

from jaxtrain.config.methods import SamConfig
from jaxtrain.dtypes import widen
from jaxtrain.training.methods.base import Gradients, Objective
from jaxtrain.training.methods.plain import Plain

# ASAM's eta, which is added to the absolute value of each weight.
ETA = 0.01


class Sam(Plain):
    """Two forward and backward passes per step, the second at perturbed weights.

    The gradients are from the second pass; batch-norm statistics and metrics are from
    the first. Both passes use the same PRNG key. The perturbation is along the gradient
    of the full micro-batch, over all devices.
    """

    Options = SamConfig

    def __init__(self, **given: Any):
        options = SamConfig(**given)
        self._adaptive = options.adaptive
        self._rho = options.rho or (0.5 if options.adaptive else 0.05)

    def gradients(self, objective: Objective, params: Any, *given: Any) -> Gradients:
        grads, after, metrics = super().gradients(objective, params, *given)
        perturbed_params = self._perturbed(objective, params, grads)
        grads, _, perturbed = super().gradients(objective, perturbed_params, *given)
        metrics = {**metrics, "sharpness": perturbed["loss"] - metrics["loss"]}
        return grads, after, metrics

    def _perturbed(self, objective: Objective, params: Any, grads: Any) -> Any:
        """Perturb the weights towards the highest loss within distance rho."""
        weights, grads = widen(params), widen(objective.all_reduce(grads))
        scales = jax.tree.map(self._perturbation_scale, weights)
        scaled = jax.tree.map(jnp.multiply, grads, scales)
        # Zero gradients give a zero perturbation; non-finite gradients propagate.
        norm = objective.norm(scaled)
        rho = self._rho / jnp.where(norm > 0, norm, 1)
        return jax.tree.map(
            lambda p, w, g, size: (w + rho * size * g).astype(p.dtype),
            *(params, weights, scaled, scales),
        )

    def _perturbation_scale(self, weight: jax.Array) -> jax.Array:
        """Diagonal of ASAM's normalization operator: |w| + eta; 1 in SAM."""
        if self._adaptive:
            return jnp.abs(weight) + ETA
        return jnp.ones((), weight.dtype)
