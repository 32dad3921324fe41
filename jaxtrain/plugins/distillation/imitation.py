"""How far outputs are from those of a teacher, of each example: (B, ...) -> (B,)."""

import jax
import jax.numpy as jnp

from jaxtrain.dtypes import widen
from jaxtrain.tasks.losses import cross_entropy, kl_divergence, label_losses

# What logits are divided by where nobody says: Tian et al. 2020, arXiv:1910.10699.
TEMPERATURE = 4.0


def imitate_classes(
    logits: jax.Array, teacher: jax.Array, temperature: float | None, hard: bool
) -> jax.Array:
    """Return how far the probabilities of classes are from a teacher's.

    Softly, T^2 KL(p || q) of the softmax p of the teacher's logits / T and q of these /
    T: the gradient does not shrink as T grows (Hinton et al. 2015, arXiv:1503.02531).
    Hard, the cross entropy against the teacher's first class (Touvron et al. 2021,
    arXiv:2012.12877). Of maps it is the mean over the pixels.

    Args:
      logits: Logits, (B, ..., classes); computed in at least float32.
      teacher: Logits of the teacher, of the same shape.
      temperature: T; None: `TEMPERATURE`.
      hard: Whether the teacher's first class counts.
    """
    logits, teacher = widen(logits), widen(teacher)
    if hard:
        return _mean(cross_entropy(logits, teacher.argmax(-1)))
    t = TEMPERATURE if temperature is None else temperature
    return t**2 * _mean(kl_divergence(teacher / t, logits / t))


def imitate_labels(
    logits: jax.Array, teacher: jax.Array, temperature: float | None, hard: bool
) -> jax.Array:
    """Return how far the probabilities of labels are from a teacher's.

    Softly, the mean over the labels of T^2 KL(p || q), p and q the sigmoids of logits /
    T: the binary cross entropy against p, but for the entropy of p, which has no
    gradient. Hard, that against the labels of which the teacher is surer than not.

    Args:
      logits: Logits, (B, labels); computed in at least float32.
      teacher: Logits of the teacher, of the same shape.
      temperature: T; None: `TEMPERATURE`.
      hard: Whether the teacher's labels count.
    """
    logits, teacher = widen(logits), widen(teacher)
    if hard:
        return _mean(label_losses(logits, (teacher > 0).astype(logits.dtype)))
    t = TEMPERATURE if temperature is None else temperature
    logits, teacher = logits / t, teacher / t
    p = jax.nn.sigmoid(teacher)
    return t**2 * _mean(label_losses(logits, p) - label_losses(teacher, p))


def imitate_numbers(outputs: jax.Array, teacher: jax.Array) -> jax.Array:
    """Return the mean square of the differences (Ba and Caruana 2014, arXiv:1312.6184).

    Args:
      outputs: Numbers, (B, ...); computed in at least float32.
      teacher: Those of the teacher, of the same shape.
    """
    return _mean(jnp.square(widen(outputs) - widen(teacher)))


def _mean(losses: jax.Array) -> jax.Array:
    """Return the mean of each example, (B,)."""
    return losses.mean(tuple(range(1, losses.ndim)))
