"""Residual blocks (He et al. 2015, arXiv:1512.03385), in the variant v1.5.

As in torchvision, bottlenecks have the stride in the 3x3 convolution instead of the
first 1x1 convolution. The scale of the last batch norm in each block is initialized to
0, so that the residual branch is initially zero (Goyal et al. 2017, arXiv:1706.02677).
"""

from functools import partial
from typing import Any, ClassVar

import jax
from flax import nnx

from jaxtrain.models.activations import relu
from jaxtrain.models.blocks import SqueezeExcite
from jaxtrain.models.layers import Layers, drop_path
from jaxtrain.models.pools import average_pool


class ResidualBlock(nnx.Module):
    """Base class: ReLU of the sum of a residual branch and a shortcut."""

    # Ratio of the number of output channels to the argument `channels`.
    expansion: ClassVar[int]

    def __init__(
        self,
        in_channels: int,
        channels: int,
        *,
        stride: int,
        dilation: int = 1,
        layers: Layers,
    ):
        out_channels = channels * self.expansion
        self.project = stride != 1 or in_channels != out_channels
        if self.project:
            self.add_shortcut(in_channels, out_channels, stride, layers)
        # The model later sets the drop rate, which depends on the number of blocks.
        self.drop_path = drop_path(0.0)
        self.add_residual(in_channels, channels, stride, dilation, layers)

    def add_residual(
        self, features: int, channels: int, stride: int, dilation: int, layers: Layers
    ) -> None:
        """Create the layers of the residual branch."""
        raise NotImplementedError

    def add_shortcut(
        self, in_channels: int, out_channels: int, stride: int, layers: Layers
    ) -> None:
        """Create the layers of a projection shortcut, which changes the shape."""
        self.shortcut_conv = layers.conv(in_channels, out_channels, 1, stride=stride)
        self.shortcut_norm = layers.batch_norm(out_channels)

    def __call__(self, x: jax.Array, rngs: nnx.Rngs | None = None) -> jax.Array:
        shortcut = self.shortcut(x) if self.project else x
        residual = self.drop_path(self.residual(x, rngs), rngs=rngs)
        return relu(residual + shortcut)

    def shortcut(self, x: jax.Array) -> jax.Array:
        """Apply the projection shortcut."""
        return self.shortcut_norm(self.shortcut_conv(x))

    def residual(self, x: jax.Array, rngs: nnx.Rngs | None) -> jax.Array:
        """Apply the residual branch, without the sum and the last ReLU."""
        raise NotImplementedError


class BasicBlock(ResidualBlock):
    """Residual block of two 3x3 convolutions."""

    expansion = 1

    def add_residual(
        self, features: int, channels: int, stride: int, dilation: int, layers: Layers
    ) -> None:
        conv = partial(layers.conv, dilation=dilation)
        self.conv1 = conv(features, channels, 3, stride=stride, split="out")
        self.norm1 = layers.batch_norm(channels, split=True)
        self.conv2 = conv(channels, channels, 3, split="in")
        self.norm2 = layers.batch_norm(channels, scale=0.0)

    def residual(self, x: jax.Array, rngs: nnx.Rngs | None) -> jax.Array:
        x = self.norm1(self.conv1(x), relu=True)
        return self.norm2(self.conv2(x))


class Bottleneck(ResidualBlock):
    """1x1, 3x3 and 1x1 convolutions; the last increases the channels fourfold."""

    expansion = 4

    def inner(self, channels: int) -> tuple[int, int]:
        """Numbers of channels and groups of the 3x3 convolution."""
        return channels, 1

    def add_residual(
        self, features: int, channels: int, stride: int, dilation: int, layers: Layers
    ) -> None:
        inner, groups = self.inner(channels)
        out_channels = channels * self.expansion
        # With groups, each device computes full groups of conv2, and only conv3 needs
        # an all-reduce.
        grouped = groups > 1
        split = "out" if grouped else "in"
        self.conv1 = layers.conv(features, inner, 1, split="out")
        self.norm1 = layers.batch_norm(inner, split=True)
        self.conv2 = layers.conv(
            *(inner, inner, 3),
            stride=stride,
            dilation=dilation,
            groups=groups,
            split=split,
        )
        self.norm2 = layers.batch_norm(inner, split=grouped)
        # Without groups, the all-reduce follows conv2. If conv3 were split, it would
        # need another all-reduce, for four times as many channels.
        self.conv3 = layers.conv(
            inner, out_channels, 1, split="in" if grouped else None
        )
        self.norm3 = layers.batch_norm(out_channels, scale=0.0)

    def residual(self, x: jax.Array, rngs: nnx.Rngs | None) -> jax.Array:
        return self.norm3(self.conv3(self.inside(x)))

    def inside(self, x: jax.Array) -> jax.Array:
        """Compute the input of conv3."""
        x = self.norm1(self.conv1(x), relu=True)
        return self.norm2(self.conv2(x), relu=True)


class WideBottleneck(Bottleneck):
    """Bottleneck with twice the channels in its 3x3 convolution (arXiv:1605.07146)."""

    def inner(self, channels: int) -> tuple[int, int]:
        return 2 * channels, 1


class GroupedBottleneck(Bottleneck):
    """ResNeXt 32x4d's bottleneck: twice the channels in the 3x3 convolution, 32 groups.

    Xie et al. 2016, arXiv:1611.05431. A group has 4 channels if `channels` is 64.
    """

    def inner(self, channels: int) -> tuple[int, int]:
        return 32 * max(1, round(channels / 16)), 32


class SEBlock(ResidualBlock):
    """Mixin that adds squeeze-and-excitation to the residual branch.

    Hu et al. 2018, arXiv:1709.01507. As in timm's `seresnet`, squeeze-and-excitation
    follows the last batch norm of the residual branch. Among the base classes, the
    mixin must precede the block class.
    """

    def __init__(self, in_channels: int, channels: int, *, layers: Layers, **rest: Any):
        super().__init__(in_channels, channels, layers=layers, **rest)
        out_channels = channels * self.expansion
        # Squeezed features: 1/16 of the channels, rounded to a multiple of 8.
        squeezed = max(8, (out_channels // 16 + 4) // 8 * 8)
        self.se = SqueezeExcite(out_channels, squeezed, layers=layers)

    def residual(self, x: jax.Array, rngs: nnx.Rngs | None) -> jax.Array:
        return self.se(super().residual(x, rngs))


class SEBasicBlock(SEBlock, BasicBlock):
    """`BasicBlock` with squeeze-and-excitation."""


class SEBottleneck(SEBlock, Bottleneck):
    """`Bottleneck` with squeeze-and-excitation."""


class PoolingBlock(ResidualBlock):
    """Mixin that adds 2x2 average pooling to projection shortcuts with a stride.

    With odd height or width, the last windows have fewer pixels, as in timm. Among the
    base classes, the mixin must precede the block class.
    """

    def add_shortcut(
        self, in_channels: int, out_channels: int, stride: int, layers: Layers
    ) -> None:
        super().add_shortcut(in_channels, out_channels, 1, layers)
        self.shortcut_stride = stride

    def shortcut(self, x: jax.Array) -> jax.Array:
        if self.shortcut_stride > 1:
            x = average_pool(x, 2, stride=2, padding="SAME", count_padding=False)
        return super().shortcut(x)


class PoolingBasicBlock(PoolingBlock, BasicBlock):
    """`BasicBlock` with average pooling on strided shortcuts."""


class PoolingBottleneck(PoolingBlock, Bottleneck):
    """`Bottleneck` with average pooling on strided shortcuts."""
