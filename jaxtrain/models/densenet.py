"""DenseNet-BC (Huang et al. 2016, arXiv:1608.06993), initialized as in torchvision.

The input of each layer is the concatenation of the block's input and the outputs of all
earlier layers in the block.
"""

import dataclasses
from typing import ClassVar, Literal

import jax
import jax.numpy as jnp
from flax import nnx

from jaxtrain.config.models import DenseNetConfig
from jaxtrain.models.base import Model
from jaxtrain.models.batch_norm import BatchNorm
from jaxtrain.models.head import Head, mean_head
from jaxtrain.models.layers import Layers, he_fan_in, scale_channels
from jaxtrain.models.pools import average_pool, max_pool_3x3

# Output channels of a layer's 1x1 convolution, divided by the growth rate.
BOTTLENECK = 4

# The block's input and the outputs of its layers so far.
Features = tuple[jax.Array, ...]


class DenseLayer(nnx.Module):
    """Two pre-activation convolutions; their output is appended to the features."""

    def __init__(self, in_channels: int, growth: int, *, layers: Layers):
        middle = BOTTLENECK * growth
        self.norm1 = layers.batch_norm(in_channels)
        self.conv1 = layers.conv(in_channels, middle, 1, split="out")
        self.norm2 = layers.batch_norm(middle, split=True)
        self.conv2 = layers.conv(middle, growth, 3, split="in")

    def __call__(self, x: Features, rngs: nnx.Rngs | None) -> Features:
        y = self.conv1(self.norm1(_join(x), relu=True))
        return (*x, self.conv2(self.norm2(y, relu=True)))


class Transition(nnx.Module):
    """Transition between blocks: a 1x1 convolution and 2x2 average pooling."""

    def __init__(self, in_channels: int, channels: int, *, layers: Layers):
        self.norm = layers.batch_norm(in_channels)
        self.conv = layers.conv(in_channels, channels, 1)

    def __call__(self, x: Features, rngs: nnx.Rngs | None) -> Features:
        return (average_pool(self.conv(self.norm(_join(x), relu=True)), 2),)


class DenseNet(Model):
    """A stem, four blocks with transitions between them, and global average pooling."""

    Options: ClassVar = DenseNetConfig

    # Number of layers in each block.
    depths: ClassVar[tuple[int, ...]]
    # Number of output channels of each layer.
    growth: ClassVar[int] = 32

    min_size = 8

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        num_outputs: int,
        *,
        layers: Layers,
        width: float = 1.0,
        dropout: float = 0.0,
        stem: Literal["imagenet", "cifar"] = "imagenet",
    ):
        convs = dataclasses.replace(layers, init=he_fan_in, conv_bias=False)
        growth = scale_channels(self.growth, width)
        features, shrunk = 2 * growth, 2 ** (len(self.depths) - 1)
        if stem == "imagenet":
            self.stride, self.min_size = 4 * shrunk, 29
            self.add_piece(
                _imagenet_stem,
                stem_conv=convs.conv(image_shape[2], features, 7, stride=2),
                stem_norm=convs.batch_norm(features),
            )
        else:
            # Stem for CIFAR, as in the paper.
            self.stride = shrunk
            stem_conv = convs.conv(image_shape[2], features, 3)
            self.add_piece(_cifar_stem, stem_conv=stem_conv)
        for number, depth in enumerate(self.depths, 1):
            if number > 1:
                transition = Transition(features, features // 2, layers=convs)
                name = f"transition{number - 1}"
                self.add_piece(Transition.__call__, **{name: transition})
                features //= 2
            for index in range(1, depth + 1):
                layer = DenseLayer(features, growth, layers=convs)
                name = f"block{number}_layer{index}"
                self.add_piece(DenseLayer.__call__, **{name: layer})
                features += growth
        self.add_piece(_last, last_norm=layers.batch_norm(features))
        head = Head(features, num_outputs, dropout, layers=layers)
        self.add_piece(mean_head, head=head)


def _join(x: Features) -> jax.Array:
    return jnp.concatenate(x, axis=-1)


def _imagenet_stem(
    conv: nnx.Conv, norm: BatchNorm, images: jax.Array, rngs: nnx.Rngs | None
) -> Features:
    return (max_pool_3x3(norm(conv(images), relu=True), stride=2, padding=1),)


def _cifar_stem(conv: nnx.Conv, images: jax.Array, rngs: nnx.Rngs | None) -> Features:
    return (conv(images),)


def _last(norm: BatchNorm, x: Features, rngs: nnx.Rngs | None) -> jax.Array:
    return norm(_join(x), relu=True)


DenseNet121 = DenseNet.variant(depths=(6, 12, 24, 16))
