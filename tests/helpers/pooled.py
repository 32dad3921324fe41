"""A tiny model that takes images of any size."""

from typing import Any

import jax
from flax import nnx

from jaxtrain import own
from jaxtrain.models.base import Model
from jaxtrain.models.head import Head
from jaxtrain.models.layers import Layers

POOLED = "tests.helpers.pooled:Pooled"
own.allow([POOLED])


class Pooled(Model):
    """One convolution, batch norm, the mean over the image, dropout."""

    stride = 2

    def __init__(
        self, image_shape: tuple[int, int, int], num_outputs: int, *, layers: Layers
    ):
        conv = layers.conv(image_shape[2], 8, 3, stride=2, bias=False)
        self.add_piece(_first, conv=conv, norm=layers.batch_norm(8))
        self.add_piece(_last, head=Head(8, num_outputs, 0.1, layers=layers))


def _first(conv: Any, norm: Any, x: jax.Array, rngs: Any) -> jax.Array:
    return nnx.relu(norm(conv(x)))


def _last(head: Any, x: jax.Array, rngs: Any) -> jax.Array:
    return head(x.mean((1, 2)), rngs)
