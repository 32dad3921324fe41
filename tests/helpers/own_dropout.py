"""A tiny model of plain NNX, whose layers keep streams of random keys."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from jaxtrain.models.base import Model
from jaxtrain.models.head import Head
from jaxtrain.models.layers import Layers

CHANNELS = 8


class Net(nnx.Module):
    """A module of plain NNX, with dropout and noise."""

    def __init__(self, in_channels: int, *, rngs: nnx.Rngs):
        self.conv = nnx.Conv(in_channels, CHANNELS, (3, 3), rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)
        self.rngs = nnx.Rngs(0, noise=1)
        self.deterministic = False

    def __call__(self, x: jax.Array) -> jax.Array:
        x = self.dropout(jnp.tanh(self.conv(x)))
        if not self.deterministic:
            x = x + 0.1 * self.rngs.noise.normal(x.shape, x.dtype)
        return x


class OwnDropout(Model):
    """The module, the mean over the image, a head."""

    def __init__(
        self, image_shape: tuple[int, int, int], num_outputs: int, *, layers: Layers
    ):
        self.add_piece(_first, net=Net(image_shape[2], rngs=layers.rngs))
        self.add_piece(_last, head=Head(CHANNELS, num_outputs, 0.1, layers=layers))


def _first(net: Any, x: jax.Array, rngs: Any) -> jax.Array:
    return net(x)


def _last(head: Any, x: jax.Array, rngs: Any) -> jax.Array:
    return head(x.mean((1, 2)), rngs)
