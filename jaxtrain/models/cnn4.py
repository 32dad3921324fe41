"""Four plain convolutions and two dense layers, without normalisation."""

import jax
from flax import nnx

from jaxtrain.models.base import Model
from jaxtrain.models.head import Head
from jaxtrain.models.layers import Layers, scale_channels
from jaxtrain.models.pools import flatten, max_pool


class CNN4(Model):
    """Four blocks of convolution, ReLU and pool, then two dense layers."""

    min_size = 16
    stride = 16

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        num_outputs: int,
        *,
        layers: Layers,
        width: float = 1.0,
        dropout: float = 0.0,
    ):
        rows, columns, channels = image_shape
        c1, c2, c3, c4 = (scale_channels(c, width) for c in (32, 64, 128, 128))
        features = scale_channels(64, width)
        flat = (rows // 16) * (columns // 16) * c4
        self.add_piece(_block, conv1=layers.conv(channels, c1, 3, split="out"))
        self.add_piece(_block, conv2=layers.conv(c1, c2, 3, split="in"))
        self.add_piece(_block, conv3=layers.conv(c2, c3, 3, split="out"))
        self.add_piece(_block, conv4=layers.conv(c3, c4, 3, split="in"))
        self.add_piece(_dense, linear=layers.linear(flat, features))
        self.add_piece(
            Head.__call__, head=Head(features, num_outputs, dropout, layers=layers)
        )


def _block(conv: nnx.Conv, x: jax.Array, rngs: nnx.Rngs | None) -> jax.Array:
    return max_pool(nnx.relu(conv(x)))


def _dense(linear: nnx.Linear, x: jax.Array, rngs: nnx.Rngs | None) -> jax.Array:
    return nnx.relu(linear(flatten(x)))
