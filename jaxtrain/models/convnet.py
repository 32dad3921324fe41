"""A small convolutional network with batch norm: a first model for 28 to 32 pixels."""

import jax
from flax import nnx

from jaxtrain.models.base import Model
from jaxtrain.models.batch_norm import BatchNorm
from jaxtrain.models.head import Head
from jaxtrain.models.layers import Layers, scale_channels
from jaxtrain.models.pools import flatten, max_pool


class ConvNet(Model):
    """Two blocks of convolution, batch norm, ReLU and pool, and a linear layer."""

    min_size = 4
    stride = 4

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        num_outputs: int,
        *,
        layers: Layers,
        width: float = 1.0,
        dropout: float = 0.0,
    ):
        rows, columns, in_channels = image_shape
        channels = scale_channels(64, width)
        # No biases: batch norm would subtract them again.
        self.add_piece(
            _block,
            conv1=layers.conv(in_channels, channels, 3, bias=False, split="out"),
            norm1=layers.batch_norm(channels, split=True),
        )
        self.add_piece(
            _block,
            conv2=layers.conv(channels, channels, 3, bias=False, split="in"),
            norm2=layers.batch_norm(channels),
        )
        features = (rows // 4) * (columns // 4) * channels
        self.add_piece(_head, head=Head(features, num_outputs, dropout, layers=layers))


def _block(
    conv: nnx.Conv, norm: BatchNorm, x: jax.Array, rngs: nnx.Rngs | None
) -> jax.Array:
    return max_pool(norm(conv(x), relu=True))


def _head(head: Head, x: jax.Array, rngs: nnx.Rngs | None) -> jax.Array:
    return head(flatten(x), rngs)
