"""Losses of classification, of each example: logits (B, C) -> (B,)."""

import jax
import jax.numpy as jnp
import optax

from jaxtrain.dtypes import widen

# Options of losses as their authors choose them.
FOCAL_GAMMA = 2.0
REVERSE_WEIGHT = 10.0
BOOTSTRAP_BETA = 0.8
ASYMMETRIC_GAMMA, ASYMMETRIC_MARGIN = 4.0, 0.05


def cross_entropy(
    logits: jax.Array, labels: jax.Array, label_smoothing: float = 0.0
) -> jax.Array:
    """Return the cross entropy of each example.

    Args:
      logits: Logits, (batch, classes), any float dtype; computed in at least float32.
      labels: True classes, (batch,) integers.
      label_smoothing: Probability moved from the true class to all classes evenly.
    """
    logits = widen(logits)
    true_class = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
    if not label_smoothing:
        return true_class
    all_classes = -jnp.mean(jax.nn.log_softmax(logits), axis=-1)
    return (1 - label_smoothing) * true_class + label_smoothing * all_classes


def kl_divergence(logits: jax.Array, other: jax.Array) -> jax.Array:
    """Return the Kullback-Leibler divergence KL(p || q), summed over the last axis.

    Args:
      logits: Logits of p, (..., classes), any float dtype; computed in at least
        float32.
      other: Logits of q, of the same shape.
    """
    log_p, log_q = (jax.nn.log_softmax(widen(x)) for x in (logits, other))
    return jnp.sum(jnp.exp(log_p) * (log_p - log_q), -1)


def focal(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """Return -(1 - p)^2 log p of each example, p of its true class.

    Lin et al. 2017, arXiv:1708.02002, equation 4, of the softmax.
    """
    log_p = _log_probability(logits, labels)
    return -((1 - jnp.exp(log_p)) ** FOCAL_GAMMA) * log_p


def poly(logits: jax.Array, labels: jax.Array, epsilon: float = 1.0) -> jax.Array:
    """Return -log p + epsilon (1 - p) of each example, p of its true class.

    Poly-1 of Leng et al. 2022, arXiv:2204.12511.
    """
    log_p = _log_probability(logits, labels)
    return -log_p + epsilon * (1 - jnp.exp(log_p))


def symmetric(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """Return -log p + 10 * 4 (1 - p), p of the true class.

    The latter is the reverse cross entropy, with -4 for the logarithm of 0: Wang et al.
    2019, arXiv:1908.06112, whose alpha is 1 here and beta 10.
    """
    return poly(logits, labels, 4 * REVERSE_WEIGHT)


def bootstrap(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """Return the cross entropy against the label, by 0.8, and the predicted class.

    Hard bootstrapping of Reed et al. 2015, arXiv:1412.6596, equation 6.
    """
    predicted = jnp.argmax(logits, axis=-1)
    own, other = (_log_probability(logits, x) for x in (labels, predicted))
    return -(BOOTSTRAP_BETA * own + (1 - BOOTSTRAP_BETA) * other)


def _log_probability(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """Return the logarithm of the probability of each true class, (batch,)."""
    return -optax.softmax_cross_entropy_with_integer_labels(widen(logits), labels)


def binary_cross_entropy(logits: jax.Array, targets: jax.Array) -> jax.Array:
    """Return the mean over the classes of the cross entropy of "is it this one?".

    Args:
      logits: (batch, classes), any float dtype; computed in at least float32.
      targets: (batch, classes), probabilities, each for itself.
    """
    logits = widen(logits)
    losses = optax.sigmoid_binary_cross_entropy(logits, targets.astype(logits.dtype))
    return jnp.mean(losses, axis=-1)


def label_losses(
    logits: jax.Array, targets: jax.Array, weights: jax.Array | float = 1.0
) -> jax.Array:
    """Return the binary cross entropy of each label, (batch, labels).

    Args:
      logits: (batch, labels), any float dtype; computed in at least float32.
      targets: Probability of each label, (batch, labels).
      weights: Factor on the part of labels that are there, (labels,).
    """
    logits = widen(logits)
    there, absent = -jax.nn.log_sigmoid(logits), -jax.nn.log_sigmoid(-logits)
    return weights * targets * there + (1 - targets) * absent


def asymmetric_losses(
    logits: jax.Array,
    targets: jax.Array,
    weights: jax.Array | float = 1.0,
) -> jax.Array:
    """Return the asymmetric loss of each label, (batch, labels).

    Of the probability p of a label, -log p where it is there; where it is not, with q =
    max(p - 0.05, 0), -q^4 log(1 - q): equations 4 to 7 of Ridnik et al. 2021,
    arXiv:2009.14119, whose gamma+ is 0.

    Args:
      logits: (batch, labels), any float dtype; computed in at least float32.
      targets: Probability of each label, (batch, labels).
      weights: Factor on the part of labels that are there, (labels,).
    """
    logits = widen(logits)
    there = -jax.nn.log_sigmoid(logits)
    shifted = jnp.maximum(jax.nn.sigmoid(logits) - ASYMMETRIC_MARGIN, 0)
    absent = -jnp.log1p(-shifted) * shifted**ASYMMETRIC_GAMMA
    return weights * targets * there + (1 - targets) * absent
