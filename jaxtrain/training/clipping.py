"""Gradient clipping, chained before the optimizer."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from jaxtrain.dtypes import widen


def clip(grads: Any, norm: jax.Array, max_norm: float) -> Any:
    """Scale `grads`, of global norm `norm`, to a norm of at most `max_norm`."""
    return jax.tree.map(
        lambda g: jnp.where(norm < max_norm, g, g / norm * max_norm), grads
    )


def clip_by_ratio(grads: Any, params: Any, ratio: float) -> Any:
    """Adaptive gradient clipping (Brock et al. 2021, arXiv:2102.06171).

    For each output unit, the gradient norm is limited to `ratio` times the weight norm;
    weight norms below 1e-3 are replaced by 1e-3. A vector is a single unit.
    """
    tx = optax.adaptive_grad_clip(ratio)
    wide_grads, wide_params = widen((grads, params))
    return tx.update(wide_grads, tx.init(wide_params), wide_params)[0]


def with_clipping(
    tx: optax.GradientTransformationExtraArgs,
    max_norm: float | None,
    ratio: float | None,
) -> optax.GradientTransformationExtraArgs:
    """Clip gradients before `tx`; the structure of the optimizer state is unchanged.

    `update` takes the global norm as `grad_norm`: a pipeline stage has only the
    gradients of its layers, so `optax.clip_by_global_norm` would use a partial norm.

    Args:
      tx: Optimizer of the clipped gradients.
      max_norm: Largest global norm; None disables clipping by norm.
      ratio: Largest ratio of an output unit's gradient norm to its weight norm; None
        disables adaptive clipping.
    """

    def update(
        updates: Any, state: Any, params: Any = None, **extra: Any
    ) -> tuple[Any, Any]:
        grad_norm = extra.pop("grad_norm")
        if max_norm is not None:
            updates = clip(updates, grad_norm, max_norm)
        if ratio is not None:
            updates = clip_by_ratio(updates, params, ratio)
        return tx.update(updates, state, params, **extra)

    return optax.GradientTransformationExtraArgs(tx.init, update)
