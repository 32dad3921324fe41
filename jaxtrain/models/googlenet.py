"""GoogLeNet (Szegedy et al. 2014, arXiv:1409.4842), with batch norm, as in torchvision.

There the 5x5 convolutions are 3x3, as in the weights that it ported from TensorFlow,
and nothing is normalised locally. Dropout, initialisation and the pool of the auxiliary
heads are torchvision's, too; the weight of their losses is the paper's.
"""

import dataclasses
from collections.abc import Mapping
from functools import partial
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from jaxtrain.models.auxiliary import AuxiliaryHead
from jaxtrain.models.base import Model
from jaxtrain.models.blocks import ConvNorm
from jaxtrain.models.head import Head, mean_head
from jaxtrain.models.layers import Layers, scale_channels
from jaxtrain.models.pools import (
    adaptive_average_pool,
    flatten,
    max_pool,
    max_pool_3x3,
)

# Rows and columns that the first dense layer of an auxiliary head sees.
POOLED = 4

# torchvision cuts it at 2, which none of its numbers comes near.
normal = nnx.initializers.normal(0.01)


class Channels(NamedTuple):
    """Channels of an inception block: those of its convolutions."""

    conv1x1: int
    reduce3x3: int
    conv3x3: int
    reduce5x5: int
    conv5x5: int
    pool: int

    @property
    def out(self) -> int:
        return self.conv1x1 + self.conv3x3 + self.conv5x5 + self.pool


# Table 1 of the paper.
BLOCKS = {
    "inception3a": Channels(64, 96, 128, 16, 32, 32),
    "inception3b": Channels(128, 128, 192, 32, 96, 64),
    "inception4a": Channels(192, 96, 208, 16, 48, 64),
    "inception4b": Channels(160, 112, 224, 24, 64, 64),
    "inception4c": Channels(128, 128, 256, 24, 64, 64),
    "inception4d": Channels(112, 144, 288, 32, 64, 64),
    "inception4e": Channels(256, 160, 320, 32, 128, 128),
    "inception5a": Channels(256, 160, 320, 32, 128, 128),
    "inception5b": Channels(384, 192, 384, 48, 128, 128),
}


class Inception(nnx.Module):
    """Four branches side by side, their channels joined."""

    def __init__(self, in_channels: int, channels: Channels, *, layers: Layers):
        c, conv = channels, partial(ConvNorm, layers=layers)
        self.conv1x1 = conv(in_channels, c.conv1x1, 1)
        self.reduce3x3 = conv(in_channels, c.reduce3x3, 1, split="out")
        self.conv3x3 = conv(c.reduce3x3, c.conv3x3, 3, split="in")
        self.reduce5x5 = conv(in_channels, c.reduce5x5, 1, split="out")
        self.conv5x5 = conv(c.reduce5x5, c.conv5x5, 3, split="in")
        self.pool_conv = conv(in_channels, c.pool, 1)

    def __call__(self, x: jax.Array, rngs: nnx.Rngs | None = None) -> jax.Array:
        pooled = max_pool_3x3(x, stride=1, padding=1)
        branches = [
            self.conv1x1(x),
            self.conv3x3(self.reduce3x3(x)),
            self.conv5x5(self.reduce5x5(x)),
            self.pool_conv(pooled),
        ]
        return jnp.concatenate(branches, axis=-1)


class GoogLeNetAuxiliary(AuxiliaryHead):
    """A pool, a 1x1 convolution and two dense layers."""

    def __init__(
        self,
        in_channels: int,
        num_outputs: int,
        *,
        weight: float,
        width: float,
        layers: Layers,
    ):
        super().__init__(weight)
        channels, hidden = scale_channels(128, width), scale_channels(1024, width)
        self.conv = ConvNorm(in_channels, channels, 1, layers=layers)
        self.linear = layers.linear(POOLED**2 * channels, hidden)
        # Of the paper.
        self.head = Head(hidden, num_outputs, 0.7, layers=layers)

    def outputs(self, x: jax.Array, rngs: nnx.Rngs | None) -> jax.Array:
        x = self.conv(adaptive_average_pool(x, POOLED))
        return self.head(nnx.relu(self.linear(flatten(x))), rngs)


class GoogLeNet(Model):
    """A stem, nine inception blocks, and two auxiliary heads in training."""

    min_size = 15
    stride = 32

    # Inception blocks, and those among them that an auxiliary head follows.
    blocks: ClassVar[Mapping[str, Channels]] = BLOCKS
    with_head: ClassVar[Mapping[str, str]] = {
        "inception4a": "aux1",
        "inception4d": "aux2",
    }

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        num_outputs: int,
        *,
        layers: Layers,
        width: float = 1.0,
        dropout: float = 0.2,
        norm_epsilon: float = 1e-3,
        aux_weight: float = 0.3,
    ):
        layers = dataclasses.replace(layers, norm_epsilon=norm_epsilon, init=normal)
        features = self._add_stem(image_shape[2], width, layers)
        for name, channels in self.blocks.items():
            channels = Channels(*(scale_channels(c, width) for c in channels))
            block = Inception(features, channels, layers=layers)
            self.add_piece(POOLS.get(name, Inception.__call__), **{name: block})
            features = channels.out
            if aux_weight and name in self.with_head:
                head = GoogLeNetAuxiliary(
                    features, num_outputs, weight=aux_weight, width=width, layers=layers
                )
                self.add_piece(AuxiliaryHead.__call__, **{self.with_head[name]: head})
        head = Head(features, num_outputs, dropout, layers=layers)
        self.add_piece(mean_head, head=head)

    def _add_stem(self, channels: int, width: float, layers: Layers) -> int:
        """Add the first three convolutions; return how many channels come out."""
        c1, c2 = scale_channels(64, width), scale_channels(192, width)
        conv1 = ConvNorm(channels, c1, 7, stride=2, layers=layers)
        self.add_piece(_and_pool_3x3, conv1=conv1)
        conv2 = ConvNorm(c1, c1, 1, split="out", layers=layers)
        self.add_piece(ConvNorm.__call__, conv2=conv2)
        conv3 = ConvNorm(c1, c2, 3, split="in", layers=layers)
        self.add_piece(_and_pool_3x3, conv3=conv3)
        return c2


def _and_pool_3x3(
    layer: ConvNorm | Inception, x: jax.Array, rngs: nnx.Rngs | None
) -> jax.Array:
    return max_pool_3x3(layer(x), stride=2, keep_rest=True)


def _and_pool_2x2(block: Inception, x: jax.Array, rngs: nnx.Rngs | None) -> jax.Array:
    return max_pool(block(x), keep_rest=True)


# The blocks that a pool follows.
POOLS = {"inception3b": _and_pool_3x3, "inception4e": _and_pool_2x2}
