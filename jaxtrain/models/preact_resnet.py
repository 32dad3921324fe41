"""Pre-activation ResNets (He et al. 2016, arXiv:1603.05027) and Wide ResNets.

Batch norm and ReLU precede each convolution instead of following it, and no ReLU
follows residual sums. As in timm's `resnetv2_18` and `resnetv2_50`, the stem has
neither batch norm nor ReLU, and bottlenecks have the stride in the 3x3 convolution.
"""

from functools import partial
from typing import Any, ClassVar

import jax
from flax import nnx

from jaxtrain.config.models import WideResNetConfig
from jaxtrain.models.batch_norm import BatchNorm
from jaxtrain.models.head import Head
from jaxtrain.models.layers import Layers, scale_channels
from jaxtrain.models.pools import max_pool_3x3
from jaxtrain.models.residual import ResidualBlock
from jaxtrain.models.resnet import ResNet, Stem, without_bias


class PreActBlock(ResidualBlock):
    """Pre-activation block; a projection shortcut follows the first norm and ReLU."""

    norm1: BatchNorm

    def add_shortcut(
        self, in_channels: int, out_channels: int, stride: int, layers: Layers
    ) -> None:
        self.shortcut_conv = layers.conv(in_channels, out_channels, 1, stride=stride)

    def __call__(self, x: jax.Array, rngs: nnx.Rngs | None = None) -> jax.Array:
        y = self.norm1(x, relu=True)
        shortcut = self.shortcut_conv(y) if self.project else x
        return self.drop_path(self.residual(y, rngs), rngs=rngs) + shortcut


class PreActBasicBlock(PreActBlock):
    """Pre-activation block of two 3x3 convolutions."""

    expansion = 1

    def add_residual(
        self, features: int, channels: int, stride: int, dilation: int, layers: Layers
    ) -> None:
        self.norm1 = layers.batch_norm(features)
        conv = partial(layers.conv, dilation=dilation)
        self.conv1 = conv(features, channels, 3, stride=stride, split="out")
        self.norm2 = layers.batch_norm(channels, split=True)
        self.conv2 = conv(channels, channels, 3, split="in")

    def residual(self, x: jax.Array, rngs: nnx.Rngs | None) -> jax.Array:
        return self.conv2(self.norm2(self.conv1(x), relu=True))


class PreActBottleneck(PreActBlock):
    """Pre-activation bottleneck; the last convolution has four times the channels."""

    expansion = 4

    def add_residual(
        self, features: int, channels: int, stride: int, dilation: int, layers: Layers
    ) -> None:
        self.norm1 = layers.batch_norm(features)
        self.conv1 = layers.conv(features, channels, 1, split="out")
        self.norm2 = layers.batch_norm(channels, split=True)
        self.conv2 = layers.conv(
            *(channels, channels, 3), stride=stride, dilation=dilation, split="in"
        )
        self.norm3 = layers.batch_norm(channels)
        # As in `residual.Bottleneck`, conv3 is not split.
        self.conv3 = layers.conv(channels, channels * self.expansion, 1)

    def residual(self, x: jax.Array, rngs: nnx.Rngs | None) -> jax.Array:
        x = self.conv2(self.norm2(self.conv1(x), relu=True))
        return self.conv3(self.norm3(x, relu=True))


class PreActResNet(ResNet):
    """A convolution, residual blocks, batch norm, ReLU and global average pooling."""

    def add_stem(
        self, in_channels: int, channels: int, stem: Stem, layers: Layers
    ) -> None:
        size, stride = (7, 2) if stem == "imagenet" else (3, 1)
        self.add_piece(
            _conv_and_pool if stem == "imagenet" else _conv,
            stem_conv=layers.conv(in_channels, channels, size, stride=stride),
        )

    def add_head(self, features: int, head: Head, layers: Layers) -> None:
        self.add_piece(_norm, last_norm=layers.batch_norm(features))
        super().add_head(features, head, layers)


def _conv(layer: nnx.Conv, x: jax.Array, rngs: nnx.Rngs | None) -> jax.Array:
    return layer(x)


def _conv_and_pool(layer: nnx.Conv, x: jax.Array, rngs: nnx.Rngs | None) -> jax.Array:
    return max_pool_3x3(layer(x), stride=2, padding=1)


def _norm(norm: BatchNorm, x: jax.Array, rngs: nnx.Rngs | None) -> jax.Array:
    return norm(x, relu=True)


class WideBlock(PreActBasicBlock):
    """Two 3x3 convolutions with dropout between them."""

    def __init__(
        self, in_channels: int, channels: int, *, dropout: float = 0.0, **options: Any
    ):
        super().__init__(in_channels, channels, **options)
        self.dropout = nnx.Dropout(dropout)

    def residual(self, x: jax.Array, rngs: nnx.Rngs | None) -> jax.Array:
        x = self.norm2(self.conv1(x), relu=True)
        return self.conv2(self.dropout(x, rngs=rngs))


class WideResNet(PreActResNet):
    """Wide ResNet for small images (Zagoruyko and Komodakis 2016, arXiv:1605.07146).

    A 3x3 convolution, three stages of blocks, and global average pooling. Subclasses
    set the depth and the widening factor:

        class WideResNet16x8(WideResNet):
            depth, widening = 16, 8
    """

    Options: ClassVar = WideResNetConfig

    block = WideBlock
    # Number of convolutions: the first one, two in each block, and three in projection
    # shortcuts.
    depth: ClassVar[int]
    # Widening factor: number of channels in the first stage, divided by 16.
    widening: ClassVar[int]

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        num_outputs: int,
        *,
        layers: Layers,
        width: float = 1.0,
        dropout: float = 0.0,
        drop_path: float = 0.0,
    ):
        """Create the layers; some models of the paper use a dropout rate of 0.3."""
        num_blocks, rest = divmod(self.depth - 4, 6)
        assert rest == 0, f"depth {self.depth}: expected a multiple of 6, plus 4"
        self.stride, convs = 4, without_bias(layers)
        features = scale_channels(16, width)
        self.add_stem(image_shape[2], features, "cifar", convs)
        channels = [scale_channels(16 * self.widening * 2**i, width) for i in range(3)]
        features = self.add_blocks(
            *(features, channels, [num_blocks] * 3),
            drop_path=drop_path,
            dropout=dropout,
            layers=convs,
        )
        head = Head(features, num_outputs, 0.0, layers=layers)
        self.add_head(features, head, layers)


PreActResNet18 = PreActResNet.variant(block=PreActBasicBlock, depths=(2, 2, 2, 2))
PreActResNet50 = PreActResNet.variant(block=PreActBottleneck, depths=(3, 4, 6, 3))
WideResNet28x10 = WideResNet.variant(depth=28, widening=10)
