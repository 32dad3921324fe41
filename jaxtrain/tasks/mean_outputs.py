"""Ensemble predictions: logits of the mean probabilities of several models."""

import jax
import jax.numpy as jnp

from jaxtrain.dtypes import widen


def mean_softmax(outputs: jax.Array) -> jax.Array:
    """Logarithm of the mean class probabilities of several models.

    The softmax of the result is the mean (Lakshminarayanan et al. 2017,
    arXiv:1612.01474).

    Args:
      outputs: Logits of each model, (models, ..., classes).

    Returns:
      Logits (..., classes), in at least float32.
    """
    shifted = widen(outputs) - jnp.max(widen(outputs), -1, keepdims=True)
    logs = shifted - jnp.log(jnp.sum(jnp.exp(shifted), -1, keepdims=True))
    return _log_mean_exp(logs)


def mean_sigmoid(outputs: jax.Array) -> jax.Array:
    """Logits of the mean label probabilities of several models.

    Args:
      outputs: Logits of each model, (models, ...).

    Returns:
      Logits (...), in at least float32.
    """
    outputs = widen(outputs)
    yes, no = (_log_mean_exp(_log_sigmoid(x)) for x in (outputs, -outputs))
    return yes - no


def _log_sigmoid(x: jax.Array) -> jax.Array:
    return jnp.minimum(x, 0) - jnp.log(1 + jnp.exp(-jnp.abs(x)))


def _log_mean_exp(x: jax.Array) -> jax.Array:
    """Compute log(mean(exp(x))) over the first dim."""
    largest = jnp.max(x, 0)
    return largest + jnp.log(jnp.mean(jnp.exp(x - largest), 0))
