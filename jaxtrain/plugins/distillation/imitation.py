"""Distillation losses between student and teacher outputs, (B, ...) -> (B,)."""

import jax
import jax.numpy as jnp

from jaxtrain.dtypes import widen
from jaxtrain.tasks.losses import cross_entropy, kl_divergence, label_losses

# Default temperature (Tian et al. 2020, arXiv:1910.10699).
TEMPERATURE = 4.0


def imitate_classes(
    logits: jax.Array, teacher: jax.Array, temperature: float | None, hard: bool
) -> jax.Array:
    """Distillation loss of class probabilities.

    Soft: T^2 KL(p || q), with p = softmax(teacher / T) and q = softmax(logits / T).
    T^2 makes the scale of gradients independent of T (Hinton et al. 2015,
    arXiv:1503.02531). Hard: cross entropy with the teacher's top class (Touvron et al.
    2021, arXiv:2012.12877). The loss of a class map is the mean over its pixels.

    Args:
      logits: Logits, (B, ..., classes); computed in at least float32.
      teacher: Logits of the teacher, of the same shape.
      temperature: Temperature T. Defaults to `TEMPERATURE`.
      hard: Whether to use the hard loss instead of the soft loss.
    """
    logits, teacher = widen(logits), widen(teacher)
    if hard:
        return _mean(cross_entropy(logits, teacher.argmax(-1)))
    t = TEMPERATURE if temperature is None else temperature
    return t**2 * _mean(kl_divergence(teacher / t, logits / t))


def imitate_labels(
    logits: jax.Array, teacher: jax.Array, temperature: float | None, hard: bool
) -> jax.Array:
    """Distillation loss of multi-label probabilities.

    Soft: T^2 KL(p || q), averaged over labels, with p = sigmoid(teacher / T) and q =
    sigmoid(logits / T). The KL divergence is computed as the binary cross entropy with
    targets p, minus the entropy of p. Hard: binary cross entropy with the labels whose
    teacher probability is above 0.5.

    Args:
      logits: Logits, (B, labels); computed in at least float32.
      teacher: Logits of the teacher, of the same shape.
      temperature: Temperature T. Defaults to `TEMPERATURE`.
      hard: Whether to use the hard loss instead of the soft loss.
    """
    logits, teacher = widen(logits), widen(teacher)
    if hard:
        return _mean(label_losses(logits, (teacher > 0).astype(logits.dtype)))
    t = TEMPERATURE if temperature is None else temperature
    logits, teacher = logits / t, teacher / t
    p = jax.nn.sigmoid(teacher)
    return t**2 * _mean(label_losses(logits, p) - label_losses(teacher, p))


def imitate_numbers(outputs: jax.Array, teacher: jax.Array) -> jax.Array:
    """Mean squared error to teacher outputs (Ba and Caruana 2014, arXiv:1312.6184).

    Args:
      outputs: Student outputs, (B, ...); computed in at least float32.
      teacher: Teacher outputs of the same shape.
    """
    return _mean(jnp.square(widen(outputs) - widen(teacher)))


def _mean(losses: jax.Array) -> jax.Array:
    """Mean per example, (B,)."""
    return losses.mean(tuple(range(1, losses.ndim)))
