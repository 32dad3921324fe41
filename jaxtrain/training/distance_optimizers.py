"""Optimizers that estimate the learning rate: D-Adaptation and Prodigy."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax

from jaxtrain.config.optimizers import DAdaptAdamWConfig, ProdigyConfig
from jaxtrain.registry import Row
from jaxtrain.training.optimizers import Tx, decayed
from jaxtrain.training.schedules import Schedule


def _distance(
    make: Callable[..., Tx], lr: Schedule, weight_decay: float, b1: float, b2: float
) -> Tx:
    """Adam that estimates the learning rate from the distance to the initial weights.

    At a learning rate of 0, as in the first step of a warm-up, optax computes 0 / 0.
    Here such a step changes only the step count.

    Args:
      make: Constructor of the optax optimizer, called without weight decay.
      lr: Factor on the estimated learning rate.
      weight_decay: Decoupled decay of the kernels, as in AdamW.
      b1: Decay of the first moment.
      b2: Decay of the second moment.
    """
    tx = make(lr, betas=(b1, b2))

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        new: Any
        updates, new = tx.update(updates, state, params)
        finite = jnp.isfinite(new.estim_lr)
        updates = jax.tree.map(lambda u: jnp.where(finite, u, 0), updates)
        same = state._replace(count=new.count)
        kept = jax.tree.map(lambda x, y: jnp.where(finite, x, y), new, same)
        correction = jnp.sqrt(1 - b2**new.count) / (1 - b1**new.count)
        rate = state.estim_lr * lr(state.count) * correction
        return decayed(updates, params, rate * weight_decay), kept

    return optax.GradientTransformation(tx.init, update)


def _prodigy(
    lr: Schedule,
    weight_decay: float,
    b1: float,
    b2: float,
    eps: float,
) -> Tx:
    make = partial(optax.contrib.prodigy, eps=eps)
    return _distance(make, lr, weight_decay, b1, b2)


def _dadapt_adamw(
    lr: Schedule,
    weight_decay: float,
    b1: float,
    b2: float,
    eps: float,
) -> Tx:
    make = partial(optax.contrib.dadapt_adamw, eps=eps)
    return _distance(make, lr, weight_decay, b1, b2)


# Values of `jaxtrain.training.OPTIMIZERS`.

# Mishchenko & Defazio 2023, arXiv:2306.06101.
PRODIGY = Row(_prodigy, ProdigyConfig)
# Defazio & Mishchenko 2023, arXiv:2301.07733.
DADAPT_ADAMW = Row(_dadapt_adamw, DAdaptAdamWConfig)
