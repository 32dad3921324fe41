"""Clipping of gradients, before an optimizer gets them."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from jaxtrain.dtypes import widen


def clip(grads: Any, norm: jax.Array, max_norm: float) -> Any:
    """Scale `grads` down to `max_norm` if `norm`, of all layers, is larger."""
    return jax.tree.map(
        lambda g: jnp.where(norm < max_norm, g, g / norm * max_norm), grads
    )


def clip_by_ratio(grads: Any, params: Any, ratio: float) -> Any:
    """Scale the gradients of each output down to a part of the norm of its weights.

    Adaptive gradient clipping (Brock et al. 2021, arXiv:2102.06171), which leaves a
    norm of at least 1e-3 to weights that are 0; a vector is one output.
    """
    tx = optax.adaptive_grad_clip(ratio)
    wide_grads, wide_params = widen((grads, params))
    return tx.update(wide_grads, tx.init(wide_params), wide_params)[0]


def with_clipping(
    tx: optax.GradientTransformationExtraArgs,
    max_norm: float | None,
    ratio: float | None,
) -> optax.GradientTransformationExtraArgs:
    """Clip gradients before `tx`, whose state stays as it is.

    `optax.clip_by_global_norm` computes the norm of the gradients that it gets; of a
    pipeline stage these are some, and so `update` takes `grad_norm`, that of all.

    Args:
      tx: Optimizer of these gradients.
      max_norm: Largest norm of all gradients; None clips none.
      ratio: Largest norm of an output's gradients as a part of that of its weights;
        None clips none.
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
