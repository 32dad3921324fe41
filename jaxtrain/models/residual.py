"""Residual blocks (He et al. 2015, arXiv:1512.03385), in the variant known as v1.5.

As in torchvision, a bottleneck strides in its 3x3 convolution, not in its first 1x1.
The last batch norm of each block starts at scale 0, so that a block starts as its
shortcut (Goyal et al. 2017, arXiv:1706.02677).
"""

from typing import ClassVar

import jax
from flax import nnx

from jaxtrain.models.activations import relu
from jaxtrain.models.initializers import he_fan_out
from jaxtrain.models.layers import Layers, Split, drop_path


def conv(
    in_channels: int,
    channels: int,
    size: int,
    *,
    stride: int = 1,
    groups: int = 1,
    split: Split | None = None,
    layers: Layers,
) -> nnx.Conv:
    """Make a convolution that a batch norm follows."""
    return layers.conv(
        in_channels,
        channels,
        size,
        stride=stride,
        groups=groups,
        bias=False,
        init=he_fan_out,
        split=split,
    )


class ResidualBlock(nnx.Module):
    """A residual branch, left to subclasses, plus the shortcut."""

    # Output channels over `channels`.
    expansion: ClassVar[int]

    def __init__(self, in_channels: int, channels: int, *, stride: int, layers: Layers):
        out_channels = channels * self.expansion
        self.project = stride != 1 or in_channels != out_channels
        if self.project:
            self.add_shortcut(in_channels, out_channels, stride, layers)
        # The model sets the rate: it depends on how many blocks there are.
        self.drop_path = drop_path(0.0)

    def add_shortcut(
        self, in_channels: int, out_channels: int, stride: int, layers: Layers
    ) -> None:
        """Create the layers of a shortcut that changes the shape."""
        self.shortcut_conv = conv(
            in_channels, out_channels, 1, stride=stride, layers=layers
        )
        self.shortcut_norm = layers.batch_norm(out_channels)

    def __call__(self, x: jax.Array, rngs: nnx.Rngs | None = None) -> jax.Array:
        shortcut = self.shortcut(x) if self.project else x
        residual = self.drop_path(self.residual(x, rngs), rngs=rngs)
        return relu(residual + shortcut)

    def shortcut(self, x: jax.Array) -> jax.Array:
        """Return the shortcut, where it changes the shape."""
        return self.shortcut_norm(self.shortcut_conv(x))

    def residual(self, x: jax.Array, rngs: nnx.Rngs | None) -> jax.Array:
        """Return the residual branch, before the sum and the last ReLU."""
        raise NotImplementedError


class BasicBlock(ResidualBlock):
    """Two 3x3 convolutions."""

    expansion = 1

    def __init__(self, in_channels: int, channels: int, *, stride: int, layers: Layers):
        super().__init__(in_channels, channels, stride=stride, layers=layers)
        self.conv1 = conv(
            in_channels, channels, 3, stride=stride, split="out", layers=layers
        )
        self.norm1 = layers.batch_norm(channels, split=True)
        self.conv2 = conv(channels, channels, 3, split="in", layers=layers)
        self.norm2 = layers.batch_norm(channels, scale=0.0)

    def residual(self, x: jax.Array, rngs: nnx.Rngs | None) -> jax.Array:
        x = self.norm1(self.conv1(x), relu=True)
        return self.norm2(self.conv2(x))


class Bottleneck(ResidualBlock):
    """A 1x1, a 3x3 and a 1x1 convolution; the last has four times the channels."""

    expansion = 4

    def __init__(
        self,
        in_channels: int,
        channels: int,
        *,
        stride: int,
        inner: int | None = None,
        groups: int = 1,
        layers: Layers,
    ):
        """Create the layers.

        Args:
          in_channels: Number of input channels.
          channels: Number of output channels over `expansion`.
          stride: Stride of the 3x3 convolution.
          inner: Channels between the convolutions. Defaults to `channels`.
          groups: Number of groups of the 3x3 convolution.
          layers: Factory of the layers.
        """
        super().__init__(in_channels, channels, stride=stride, layers=layers)
        out_channels = channels * self.expansion
        inner = inner or channels
        # Groups are split, too, and then only the last convolution adds up.
        grouped = groups > 1
        self.conv1 = conv(in_channels, inner, 1, split="out", layers=layers)
        self.norm1 = layers.batch_norm(inner, split=True)
        self.conv2 = conv(
            *(inner, inner, 3),
            stride=stride,
            groups=groups,
            split="out" if grouped else "in",
            layers=layers,
        )
        self.norm2 = layers.batch_norm(inner, split=grouped)
        # Whole, without groups: split, it would need a reduction of its own, of four
        # times the channels.
        self.conv3 = conv(
            inner, out_channels, 1, split="in" if grouped else None, layers=layers
        )
        self.norm3 = layers.batch_norm(out_channels, scale=0.0)

    def residual(self, x: jax.Array, rngs: nnx.Rngs | None) -> jax.Array:
        return self.norm3(self.conv3(self.inside(x)))

    def inside(self, x: jax.Array) -> jax.Array:
        """Return what the last convolution takes."""
        x = self.norm1(self.conv1(x), relu=True)
        return self.norm2(self.conv2(x), relu=True)
