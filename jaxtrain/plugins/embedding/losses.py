"""Losses of embeddings, of each example, (B,)."""

import math

import jax
import jax.numpy as jnp
import optax

from jaxtrain.dtypes import widen
from jaxtrain.models.centres import unit

# Least square of a sine whose root is differentiated.
LEAST_SINE = 1e-12
# Stands for minus infinity, whose gradients would be NaN.
NEVER = -1e30


def arcface_losses(
    cosines: jax.Array, label: jax.Array, *, margin: float, scale: float
) -> jax.Array:
    """Return the additive angular margin loss: equation 3 of Deng et al. 2019.

    The cross entropy of `scale` times the cosines, of which that of the true class is
    cos(angle + margin). Where angle + margin is beyond pi, and its cosine would rise
    again, it is cos(angle) - margin sin(margin), as in the code of the authors.

    Args:
      cosines: Cosines of the angles to the centres of the classes, (B, classes).
      label: True classes, (B,) integers; below 0 if unknown, which has a loss of 0.
      margin: Angle in radians.
      scale: Factor on the cosines.
    """
    cosines = widen(cosines)
    true = jax.nn.one_hot(label, cosines.shape[-1], dtype=jnp.bool_)
    cosine = jnp.sum(jnp.where(true, cosines, 0), -1, keepdims=True)
    sine = jnp.sqrt(jnp.maximum(1 - jnp.square(cosine), LEAST_SINE))
    turned = cosine * math.cos(margin) - sine * math.sin(margin)
    beyond = cosine <= math.cos(math.pi - margin)
    turned = jnp.where(beyond, cosine - margin * math.sin(margin), turned)
    logits = scale * jnp.where(true, turned, cosines)
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, label)
    return jnp.where(label >= 0, losses, 0)


def agreement_losses(predicted: jax.Array, target: jax.Array) -> jax.Array:
    """Return 2 - 2 times the cosine: equation 2 of Grill et al. 2020.

    Args:
      predicted: What is predicted for each view, (B, size), of any length.
      target: What it is to be, likewise.
    """
    one, other = unit(widen(predicted)), unit(widen(target))
    return 2 - 2 * jnp.sum(one * other, -1)


def contrastive_losses(
    outputs: jax.Array, label: jax.Array, *, temperature: float
) -> jax.Array:
    """Return the supervised contrastive loss: L_out, equation 2 of Khosla et al. 2020.

    Of each example the mean, over the others of its class in the batch, of minus the
    logarithm of the softmax of their similarity among all others. An example whose
    class has no other, or is below 0, which is not known, has a loss of 0.

    Args:
      outputs: Embeddings of any length, (B, size).
      label: Class of each example, (B,) integers.
      temperature: Divisor of the cosines.
    """
    units = unit(widen(outputs))
    # A temperature of 0.1 would make 0.01 of the rounding of a TF32 product.
    product = jnp.dot(units, units.T, precision=jax.lax.Precision.HIGHEST)
    others = ~jnp.eye(len(units), dtype=jnp.bool_)
    similar = jnp.where(others, product / temperature, NEVER)
    alike = (label[:, None] == label) & (label >= 0) & others
    num = jnp.sum(alike, -1)
    mean = jnp.sum(jnp.where(alike, similar, 0), -1) / jnp.maximum(num, 1)
    return jnp.where(num > 0, jax.nn.logsumexp(similar, -1) - mean, 0)
