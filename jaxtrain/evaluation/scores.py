"""What is remembered of each example that a classifier was shown: a few numbers."""

import jax
import jax.numpy as jnp

from jaxtrain.dtypes import widen

Scores = dict[str, jax.Array]


def scores(
    logits: jax.Array, labels: jax.Array, temperature: jax.Array | float = 1.0
) -> Scores:
    """Return (B,) each, float32.

    `confidence` is the probability of the class ranked first, `correct` whether it is
    the true one, `nll` the negative log-likelihood of that, and `brier` the squared
    distance of the probabilities to it (Brier 1950), in 0..2.

    Args:
      logits: Logits, (B, classes).
      labels: True classes, (B,).
      temperature: Divisor of the logits.
    """
    logs = jax.nn.log_softmax(widen(logits) / temperature, axis=-1)
    probabilities = jnp.exp(logs)
    true = jax.nn.one_hot(labels, logs.shape[-1], dtype=logs.dtype)
    return {
        "confidence": probabilities.max(-1),
        "correct": (jnp.argmax(logs, -1) == labels).astype(logs.dtype),
        "nll": -jnp.sum(jnp.where(true > 0, logs, 0), axis=-1),
        "brier": jnp.sum(jnp.square(probabilities - true), axis=-1),
    }


def ordinary(logits: jax.Array) -> Scores:
    """Return how ordinary an image looks to the model, (B,) each: higher is more so.

    `max_softmax` is the probability of the class ranked first (Hendrycks and Gimpel
    2017, arXiv:1610.02136), `energy` the logarithm of the sum of the exponentials of
    the logits: the negative of the energy of Liu et al. 2020 (arXiv:2010.03759) at
    temperature 1.
    """
    logits = widen(logits)
    return {
        "max_softmax": jax.nn.softmax(logits, axis=-1).max(-1),
        "energy": jax.nn.logsumexp(logits, axis=-1),
    }
