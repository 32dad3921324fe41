"""A tiny model whose state is not that of our batch norm."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from jaxtrain.models.base import Model
from jaxtrain.models.head import Head
from jaxtrain.models.layers import Layers

CHANNELS = 8


class Scale(nnx.Module):
    """Divide by the largest value of each channel so far, as a quantiser might."""

    def __init__(self, channels: int):
        # As many dims as the statistics of several groups of batch norm.
        self.largest = nnx.Variable(jnp.ones((1, channels)))
        self.count = nnx.Variable(jnp.zeros((), jnp.int32))
        self.deterministic = False

    def __call__(self, x: jax.Array) -> jax.Array:
        if not self.deterministic:
            seen = jax.lax.stop_gradient(jnp.abs(x).max((0, 1, 2)))
            self.largest[...] = jnp.maximum(self.largest[...], seen)
            self.count[...] += 1
        return x / self.largest[...]


class PlainNorm(Model):
    """Convolution, Flax's own batch norm, a scale, the mean over the image."""

    def __init__(
        self, image_shape: tuple[int, int, int], num_outputs: int, *, layers: Layers
    ):
        norm = nnx.BatchNorm(CHANNELS, rngs=layers.rngs)
        conv = layers.conv(image_shape[2], CHANNELS, 3)
        self.add_piece(_first, conv=conv, norm=norm, scale=Scale(CHANNELS))
        self.add_piece(_last, head=Head(CHANNELS, num_outputs, 0.1, layers=layers))


def _first(conv: Any, norm: Any, scale: Any, x: jax.Array, rngs: Any) -> jax.Array:
    # Smooth: runs on other devices differ by rounding alone, in float32 too.
    return scale(jnp.tanh(norm(conv(x))))


def _last(head: Any, x: jax.Array, rngs: Any) -> jax.Array:
    return head(x.mean((1, 2)), rngs)
