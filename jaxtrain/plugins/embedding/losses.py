"""Per-example losses of embeddings, (B,)."""

import math

import jax
import jax.numpy as jnp
import optax

from jaxtrain.dtypes import widen
from jaxtrain.models.centres import unit

# Lower bound of the squared sine: sqrt has an infinite derivative at 0.
LEAST_SINE = 1e-12
# Value of masked similarities; minus infinity would cause NaN gradients.
NEVER = -1e30


def arcface_losses(
    cosines: jax.Array, label: jax.Array, *, margin: float, scale: float
) -> jax.Array:
    """Additive angular margin loss: equation 3 of Deng et al. 2019.

    Cross entropy of `scale * cosines`, where the cosine of the true class is replaced
    by cos(angle + margin), or by cos(angle) - margin * sin(margin) if angle + margin
    exceeds pi, as in the authors' code.

    Args:
      cosines: Cosine similarities with the class centres, (B, classes).
      label: Class of each example, int (B,); negative if unknown, with loss 0.
      margin: Angular margin in radians.
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
    """BYOL loss, 2 - 2 cosine: equation 2 of Grill et al. 2020.

    Args:
      predicted: Predictions of the online network, (B, size), of any norm.
      target: Target network's projections of the other view, (B, size), of any norm.
    """
    one, other = unit(widen(predicted)), unit(widen(target))
    return 2 - 2 * jnp.sum(one * other, -1)


def contrastive_losses(
    outputs: jax.Array, label: jax.Array, *, temperature: float
) -> jax.Array:
    """Supervised contrastive loss: L_out, equation 2 of Khosla et al. 2020.

    The loss of an example is the negative log-softmax of its similarities to all other
    examples, averaged over its positives (other examples of its class). The loss is 0
    for examples without positives, and for unknown classes (labels below 0).

    Args:
      outputs: Embeddings of any norm, (B, size).
      label: Class of each example, int (B,).
      temperature: Divisor of the cosines.
    """
    units = unit(widen(outputs))
    # TF32 products divided by a temperature of 0.1 would have an error of 0.01.
    product = jnp.dot(units, units.T, precision=jax.lax.Precision.HIGHEST)
    others = ~jnp.eye(len(units), dtype=jnp.bool_)
    similar = jnp.where(others, product / temperature, NEVER)
    alike = (label[:, None] == label) & (label >= 0) & others
    num = jnp.sum(alike, -1)
    mean = jnp.sum(jnp.where(alike, similar, 0), -1) / jnp.maximum(num, 1)
    return jnp.where(num > 0, jax.nn.logsumexp(similar, -1) - mean, 0)
