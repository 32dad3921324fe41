"""Classification losses per example: logits (B, C) -> (B,)."""

import jax
import jax.numpy as jnp
import optax

from jaxtrain.dtypes import widen

# Loss parameters from the papers.
FOCAL_GAMMA = 2.0
REVERSE_WEIGHT = 10.0
BOOTSTRAP_BETA = 0.8
ASYMMETRIC_GAMMA, ASYMMETRIC_MARGIN = 4.0, 0.05


def cross_entropy(
    logits: jax.Array, labels: jax.Array, label_smoothing: float = 0.0
) -> jax.Array:
    """Cross entropy of each example.

    Args:
      logits: Logits, (batch, classes), any float dtype; computed in at least float32.
      labels: True classes, int (batch,).
      label_smoothing: Probability distributed uniformly over all classes.
    """
    logits = widen(logits)
    true_class = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
    if not label_smoothing:
        return true_class
    all_classes = -jnp.mean(jax.nn.log_softmax(logits), axis=-1)
    return (1 - label_smoothing) * true_class + label_smoothing * all_classes


def kl_divergence(logits: jax.Array, other: jax.Array) -> jax.Array:
    """Kullback-Leibler divergence KL(p || q), summed over the last axis.

    Args:
      logits: Logits of p, (..., classes), any float dtype; computed in at least
        float32.
      other: Logits of q, of the same shape.
    """
    log_p, log_q = (jax.nn.log_softmax(widen(x)) for x in (logits, other))
    return jnp.sum(jnp.exp(log_p) * (log_p - log_q), -1)


def focal(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """Focal loss -(1 - p)^2 log p, with p the probability of the true class.

    Lin et al. 2017, arXiv:1708.02002, equation 4, with softmax.
    """
    log_p = _log_probability(logits, labels)
    return -((1 - jnp.exp(log_p)) ** FOCAL_GAMMA) * log_p


def poly(logits: jax.Array, labels: jax.Array, epsilon: float = 1.0) -> jax.Array:
    """Poly-1 loss -log p + epsilon (1 - p), with p the probability of the true class.

    Leng et al. 2022, arXiv:2204.12511.
    """
    log_p = _log_probability(logits, labels)
    return -log_p + epsilon * (1 - jnp.exp(log_p))


def symmetric(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """Symmetric cross entropy -log p + 10 * 4 (1 - p), with p as in `poly`.

    The second term is the reverse cross entropy with log 0 = -4 (Wang et al. 2019,
    arXiv:1908.06112, with alpha 1 and beta 10).
    """
    return poly(logits, labels, 4 * REVERSE_WEIGHT)


def bootstrap(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """Hard bootstrapping: 0.8 CE with the label + 0.2 CE with the predicted class.

    Reed et al. 2015, arXiv:1412.6596, equation 6.
    """
    predicted = jnp.argmax(logits, axis=-1)
    own, other = (_log_probability(logits, x) for x in (labels, predicted))
    return -(BOOTSTRAP_BETA * own + (1 - BOOTSTRAP_BETA) * other)


def _log_probability(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """Log-probability of the true class, (batch,)."""
    return -optax.softmax_cross_entropy_with_integer_labels(widen(logits), labels)


def binary_cross_entropy(logits: jax.Array, targets: jax.Array) -> jax.Array:
    """Binary cross entropy, averaged over the classes.

    Args:
      logits: Logits (batch, classes), any float dtype; computed in at least float32.
      targets: Independent target probabilities (batch, classes).
    """
    logits = widen(logits)
    losses = optax.sigmoid_binary_cross_entropy(logits, targets.astype(logits.dtype))
    return jnp.mean(losses, axis=-1)


def label_losses(
    logits: jax.Array, targets: jax.Array, weights: jax.Array | float = 1.0
) -> jax.Array:
    """Binary cross entropy of each label, (batch, labels).

    Args:
      logits: Logits (batch, labels), any float dtype; computed in at least float32.
      targets: Probability of each label, (batch, labels).
      weights: Factor of the positive term of each label, (labels,).
    """
    logits = widen(logits)
    present, absent = -jax.nn.log_sigmoid(logits), -jax.nn.log_sigmoid(-logits)
    return weights * targets * present + (1 - targets) * absent


def asymmetric_losses(
    logits: jax.Array,
    targets: jax.Array,
    weights: jax.Array | float = 1.0,
) -> jax.Array:
    """Asymmetric loss of each label, (batch, labels).

    -log p for positives and -q^4 log(1 - q) for negatives, with p = sigmoid(logit) and
    q = max(p - 0.05, 0): equations 4 to 7 of Ridnik et al. 2021, arXiv:2009.14119, with
    gamma+ = 0.

    Args:
      logits: Logits (batch, labels), any float dtype; computed in at least float32.
      targets: Probability of each label, (batch, labels).
      weights: Factor of the positive term of each label, (labels,).
    """
    logits = widen(logits)
    present = -jax.nn.log_sigmoid(logits)
    shifted = jnp.maximum(jax.nn.sigmoid(logits) - ASYMMETRIC_MARGIN, 0)
    absent = -jnp.log1p(-shifted) * shifted**ASYMMETRIC_GAMMA
    return weights * targets * present + (1 - targets) * absent
