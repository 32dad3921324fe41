"""GoogLeNet (Szegedy et al. 2014, arXiv:1409.4842), with torchvision's batch norms.

Other differences from the paper are torchvision's, too: 3x3 instead of 5x5
convolutions, no local response normalization, and dropout, initialization and pooling
of the auxiliary heads. The weight of the auxiliary losses is the paper's.
"""

import dataclasses
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from flax.typing import Initializer

from jaxtrain.config.models import InceptionConfig
from jaxtrain.models.auxiliary import AuxiliaryHead
from jaxtrain.models.base import Model
from jaxtrain.models.blocks import ConvNorm
from jaxtrain.models.head import Head, mean_head
from jaxtrain.models.layers import Layers, scale_channels
from jaxtrain.models.pools import adaptive_average_pool, flatten, max_pool, max_pool_3x3

# Height and width of the pooled features in an auxiliary head.
POOLED = 4


class Channels(NamedTuple):
    """Numbers of output channels of the convolutions in an inception block."""

    conv1x1: int
    reduce3x3: int
    conv3x3: int
    reduce5x5: int
    conv5x5: int
    pool: int


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
    """Inception block: four parallel branches, concatenated along channels."""

    def __init__(
        self, in_channels: int, channels: Channels, *, width: float, layers: Layers
    ):
        c = Channels(*(scale_channels(number, width) for number in channels))
        conv = partial(ConvNorm, layers=layers)
        self.channels = c.conv1x1 + c.conv3x3 + c.conv5x5 + c.pool
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
    """Auxiliary head: pooling, a 1x1 convolution and two dense layers."""

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
        # Dropout rate 0.7, as in the paper.
        self.head = Head(hidden, num_outputs, 0.7, layers=layers)

    def outputs(self, x: jax.Array, rngs: nnx.Rngs | None) -> jax.Array:
        x = self.conv(adaptive_average_pool(x, POOLED))
        return self.head(nnx.relu(self.linear(flatten(x))), rngs)


def _and_pool_3x3(
    layer: ConvNorm | Inception, x: jax.Array, rngs: nnx.Rngs | None
) -> jax.Array:
    return max_pool_3x3(layer(x), stride=2, keep_rest=True)


def _and_pool_2x2(block: Inception, x: jax.Array, rngs: nnx.Rngs | None) -> jax.Array:
    return max_pool(block(x), keep_rest=True)


# Block name -> forward function of the piece, for blocks followed by max pooling.
POOLS = {"inception3b": _and_pool_3x3, "inception4e": _and_pool_2x2}


class InceptionNet(Model):
    """Base class: a stem, inception blocks, and auxiliary heads in training."""

    Options: ClassVar = InceptionConfig

    stride = 32

    # Stem convolutions: (name, channels, kernel size, options, forward function of the
    # piece, which may add max pooling).
    stem: ClassVar[tuple[tuple[str, int, int, dict[str, Any], Any], ...]]
    # Block name -> specification, and block name -> name of its auxiliary head.
    blocks: ClassVar[Mapping[str, Any]]
    with_head: ClassVar[Mapping[str, str]]
    # Class of blocks, with the arguments `(in_channels, specification, width, layers)`.
    # Its attribute `channels` is the number of output channels.
    block: ClassVar[type[Any]]
    auxiliary: ClassVar[type[Any]]
    # Block name -> forward function of the piece, for blocks followed by max pooling.
    pools: ClassVar[Mapping[str, Any]] = {}
    init: ClassVar[Initializer]

    base_dropout: ClassVar[float]
    base_aux_weight: ClassVar[float]

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        num_outputs: int,
        *,
        layers: Layers,
        width: float = 1.0,
        dropout: float | None = None,
        norm_epsilon: float = 1e-3,
        aux_weight: float | None = None,
    ):
        dropout = self.base_dropout if dropout is None else dropout
        weight = self.base_aux_weight if aux_weight is None else aux_weight
        layers = dataclasses.replace(layers, norm_epsilon=norm_epsilon, init=self.init)
        features = image_shape[2]
        for name, channels, size, options, apply in self.stem:
            channels = scale_channels(channels, width)
            conv = ConvNorm(features, channels, size, layers=layers, **options)
            self.add_piece(apply, **{name: conv})
            features = channels
        for name, parts in self.blocks.items():
            block = self.block(features, parts, width=width, layers=layers)
            self.add_piece(self.pools.get(name, self.block.__call__), **{name: block})
            features = block.channels
            if weight and name in self.with_head:
                head = self.auxiliary(
                    features, num_outputs, weight=weight, width=width, layers=layers
                )
                self.add_piece(AuxiliaryHead.__call__, **{self.with_head[name]: head})
        head = Head(features, num_outputs, dropout, layers=layers)
        self.add_piece(mean_head, head=head)


class GoogLeNet(InceptionNet):
    """A stem, nine inception blocks, and two auxiliary heads in training."""

    min_size = 15

    stem = (
        ("conv1", 64, 7, {"stride": 2}, _and_pool_3x3),
        ("conv2", 64, 1, {"split": "out"}, ConvNorm.__call__),
        ("conv3", 192, 3, {"split": "in"}, _and_pool_3x3),
    )
    blocks = BLOCKS
    with_head: ClassVar = {"inception4a": "aux1", "inception4d": "aux2"}
    block, auxiliary, pools = Inception, GoogLeNetAuxiliary, POOLS
    # torchvision also truncates at +-2, 200 standard deviations, which has no effect.
    init = staticmethod(nnx.initializers.normal(0.01))

    base_dropout, base_aux_weight = 0.2, 0.3
