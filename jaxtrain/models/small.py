"""Small CNNs without residual connections, for tutorials and comparisons."""

from typing import ClassVar

import jax
from flax import nnx

from jaxtrain.config.models import ConvNetConfig, LeNetConfig
from jaxtrain.models.base import Model
from jaxtrain.models.batch_norm import BatchNorm
from jaxtrain.models.head import Head
from jaxtrain.models.layers import Layers, scale_channels
from jaxtrain.models.pools import flatten, max_pool


class LeNet(Model):
    """Two convolutions and three dense layers.

    LeNet-5 (LeCun et al. 1998, "Gradient-based learning applied to document
    recognition") with ReLU, max pooling and convolutions over all input channels.
    """

    Options: ClassVar = LeNetConfig

    min_size = 12
    stride = 4

    def __init__(
        self, image_shape: tuple[int, int, int], num_outputs: int, *, layers: Layers
    ):
        height, width, channels = image_shape
        rows, columns = (height // 2 - 4) // 2, (width // 2 - 4) // 2
        flat = rows * columns * 16
        self.add_piece(_block, conv1=layers.conv(channels, 6, 5, split="out"))
        self.add_piece(_block, conv2=layers.conv(6, 16, 5, padding=0, split="in"))
        self.add_piece(_dense, linear1=layers.linear(flat, 120, split="out"))
        self.add_piece(_dense, linear2=layers.linear(120, 84, split="in"))
        self.add_piece(Head.__call__, head=Head(84, num_outputs, 0.0, layers=layers))


class CNN4(Model):
    """Four blocks (convolution, ReLU, max pooling), then two dense layers."""

    Options: ClassVar = ConvNetConfig

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
        head = Head(features, num_outputs, dropout, layers=layers)
        self.add_piece(Head.__call__, head=head)


class ConvNet(Model):
    """Two blocks (convolution, batch norm, ReLU, max pooling), then a dense layer."""

    Options: ClassVar = ConvNetConfig

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
        # Convolutions need no bias, as batch norm would subtract it.
        self.add_piece(
            _norm_block,
            conv1=layers.conv(in_channels, channels, 3, bias=False, split="out"),
            norm1=layers.batch_norm(channels, split=True),
        )
        self.add_piece(
            _norm_block,
            conv2=layers.conv(channels, channels, 3, bias=False, split="in"),
            norm2=layers.batch_norm(channels),
        )
        features = (rows // 4) * (columns // 4) * channels
        self.add_piece(_head, head=Head(features, num_outputs, dropout, layers=layers))


def _block(conv: nnx.Conv, x: jax.Array, rngs: nnx.Rngs | None) -> jax.Array:
    return max_pool(nnx.relu(conv(x)))


def _norm_block(
    conv: nnx.Conv, norm: BatchNorm, x: jax.Array, rngs: nnx.Rngs | None
) -> jax.Array:
    return max_pool(norm(conv(x), relu=True))


def _dense(linear: nnx.Linear, x: jax.Array, rngs: nnx.Rngs | None) -> jax.Array:
    return nnx.relu(linear(flatten(x)))


def _head(head: Head, x: jax.Array, rngs: nnx.Rngs | None) -> jax.Array:
    return head(flatten(x), rngs)
