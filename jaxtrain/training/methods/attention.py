"""Where two models look: the difference of the attention of two layers.

Zagoruyko and Komodakis 2017, arXiv:1612.03928.
"""

import jax
import jax.numpy as jnp

# Added to the square of a norm, which is 0 where all activations are.
TINY = 1e-24


def attention_losses(student: jax.Array, teacher: jax.Array) -> jax.Array:
    """Return how far the maps of two layers differ, (B,).

    A map is the sum of squares over the channels, (B, H, W), divided by its norm; two
    of them differ by the mean of the squares.

    Args:
      student: Activations of the student, (B, H, W, C).
      teacher: Those of the teacher, (B, H, W, channels).
    """
    return jnp.square(_attention(student) - _attention(teacher)).mean((1, 2))


def _attention(activations: jax.Array) -> jax.Array:
    """Return the map of each example, (B, H, W), of norm 1."""
    energy = jnp.square(activations).sum(-1)
    return energy / jnp.sqrt(jnp.square(energy).sum((1, 2), keepdims=True) + TINY)
