"""Losses of classification, of each example: logits (B, C) -> (B,)."""

import jax
import jax.numpy as jnp
import optax

from jaxtrain.dtypes import widen


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


def binary_cross_entropy(logits: jax.Array, targets: jax.Array) -> jax.Array:
    """Return the mean over the classes of the cross entropy of "is it this one?".

    Args:
      logits: (batch, classes), any float dtype; computed in at least float32.
      targets: (batch, classes), probabilities, each for itself.
    """
    logits = widen(logits)
    losses = optax.sigmoid_binary_cross_entropy(logits, targets.astype(logits.dtype))
    return jnp.mean(losses, axis=-1)
