"""ResNets with pre-activation (He et al. 2016, arXiv:1603.05027).

Batch norm and ReLU come before each convolution: what blocks add up is never cut off
by a ReLU. As in timm's `resnetv2_18` and `resnetv2_50`, whose blocks all begin with
both, so that the stem has neither, and which stride in the 3x3 convolution.
"""

import jax
from flax import nnx

from jaxtrain.models.batch_norm import BatchNorm
from jaxtrain.models.head import Head
from jaxtrain.models.layers import Layers
from jaxtrain.models.pools import max_pool_3x3
from jaxtrain.models.residual import ResidualBlock, conv
from jaxtrain.models.resnet import ResNet, Stem


class PreActBlock(ResidualBlock):
    """Normalises its input, for the residual branch and a shortcut that projects."""

    def __init__(self, in_channels: int, channels: int, *, stride: int, layers: Layers):
        super().__init__(in_channels, channels, stride=stride, layers=layers)
        self.norm1 = layers.batch_norm(in_channels)

    def add_shortcut(
        self, in_channels: int, out_channels: int, stride: int, layers: Layers
    ) -> None:
        self.shortcut_conv = conv(
            in_channels, out_channels, 1, stride=stride, layers=layers
        )

    def __call__(self, x: jax.Array, rngs: nnx.Rngs | None = None) -> jax.Array:
        y = self.norm1(x, relu=True)
        shortcut = self.shortcut_conv(y) if self.project else x
        return self.drop_path(self.residual(y, rngs), rngs=rngs) + shortcut


class PreActBasicBlock(PreActBlock):
    """Two 3x3 convolutions."""

    expansion = 1

    def __init__(self, in_channels: int, channels: int, *, stride: int, layers: Layers):
        super().__init__(in_channels, channels, stride=stride, layers=layers)
        self.conv1 = conv(
            in_channels, channels, 3, stride=stride, split="out", layers=layers
        )
        self.norm2 = layers.batch_norm(channels, split=True)
        self.conv2 = conv(channels, channels, 3, split="in", layers=layers)

    def residual(self, x: jax.Array, rngs: nnx.Rngs | None) -> jax.Array:
        return self.conv2(self.norm2(self.conv1(x), relu=True))


class PreActBottleneck(PreActBlock):
    """A 1x1, a 3x3 and a 1x1 convolution; the last has four times the channels."""

    expansion = 4

    def __init__(self, in_channels: int, channels: int, *, stride: int, layers: Layers):
        super().__init__(in_channels, channels, stride=stride, layers=layers)
        self.conv1 = conv(in_channels, channels, 1, split="out", layers=layers)
        self.norm2 = layers.batch_norm(channels, split=True)
        self.conv2 = conv(
            channels, channels, 3, stride=stride, split="in", layers=layers
        )
        self.norm3 = layers.batch_norm(channels)
        # Whole, as in `residual.Bottleneck`.
        self.conv3 = conv(channels, channels * self.expansion, 1, layers=layers)

    def residual(self, x: jax.Array, rngs: nnx.Rngs | None) -> jax.Array:
        x = self.conv2(self.norm2(self.conv1(x), relu=True))
        return self.conv3(self.norm3(x, relu=True))


class PreActResNet(ResNet):
    """A bare convolution, blocks, and a last batch norm and ReLU before the mean."""

    def add_stem(
        self, in_channels: int, channels: int, stem: Stem, layers: Layers
    ) -> None:
        size, stride = (7, 2) if stem == "imagenet" else (3, 1)
        self.add_piece(
            _conv_and_pool if stem == "imagenet" else _conv,
            stem_conv=conv(in_channels, channels, size, stride=stride, layers=layers),
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


class PreActResNet18(PreActResNet):
    block = PreActBasicBlock
    depths = (2, 2, 2, 2)


class PreActResNet50(PreActResNet):
    block = PreActBottleneck
    depths = (3, 4, 6, 3)
