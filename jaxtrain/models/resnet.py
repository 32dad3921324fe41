"""ResNets (He et al. 2015, arXiv:1512.03385), in the variant known as v1.5.

As in torchvision, a bottleneck strides in its 3x3 convolution, not in its first 1x1.
The last batch norm of each block starts at scale 0, so that a block starts as its
shortcut (Goyal et al. 2017, arXiv:1706.02677).

Its relatives are in the files beside it: they have other blocks, stems or heads.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import jax
from flax import nnx

from jaxtrain.models.base import Model
from jaxtrain.models.batch_norm import BatchNorm
from jaxtrain.models.head import Head
from jaxtrain.models.layers import (
    Layers,
    Split,
    drop_path,
    drop_path_rates,
    scale_channels,
)

Stem = Literal["imagenet", "cifar"]

# Keeps the variance of the gradients from layer to layer (He et al. 2015,
# arXiv:1502.01852, equation 14).
he_normal = nnx.initializers.variance_scaling(2.0, "fan_out", "normal")


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
        init=he_normal,
        split=split,
    )


class Block(nnx.Module):
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
        return nnx.relu(residual + shortcut)

    def shortcut(self, x: jax.Array) -> jax.Array:
        """Return the shortcut, where it changes the shape."""
        return self.shortcut_norm(self.shortcut_conv(x))

    def residual(self, x: jax.Array, rngs: nnx.Rngs | None) -> jax.Array:
        """Return the residual branch, before the sum and the last ReLU."""
        raise NotImplementedError


class BasicBlock(Block):
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
        x = nnx.relu(self.norm1(self.conv1(x)))
        return self.norm2(self.conv2(x))


class Bottleneck(Block):
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
          in_channels: of the input.
          channels: of the output, over `expansion`.
          stride: of the 3x3 convolution.
          inner: channels between the convolutions; None: `channels`.
          groups: of channels that do not see each other in the 3x3 convolution.
          layers: makes them.
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
        x = nnx.relu(self.norm1(self.conv1(x)))
        return nnx.relu(self.norm2(self.conv2(x)))


class ResNet(Model):
    """A stem, stages of residual blocks, and the mean over the image."""

    # Of a convolution of one row a device, XLA computes the gradient wrongly.
    min_share = 2

    block: ClassVar[type[Block]]
    # Blocks in each stage.
    depths: ClassVar[tuple[int, ...]]

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        num_outputs: int,
        *,
        layers: Layers,
        width: float = 1.0,
        dropout: float = 0.0,
        drop_path: float = 0.0,
        stem: Stem = "imagenet",
    ):
        num_stages = len(self.depths)
        self.stride = 2 ** (num_stages + (1 if stem == "imagenet" else -1))
        features = scale_channels(64, width)
        self.add_stem(image_shape[2], features, stem, layers)
        channels = [scale_channels(64 * 2**i, width) for i in range(num_stages)]
        features = self.add_blocks(
            features, channels, self.depths, drop_path=drop_path, layers=layers
        )
        head = Head(features, num_outputs, dropout, layers=layers)
        self.add_head(features, head, layers)

    def add_stem(
        self, in_channels: int, channels: int, stem: Stem, layers: Layers
    ) -> None:
        """Append the first convolutions."""
        size, stride = (7, 2) if stem == "imagenet" else (3, 1)
        self.add_piece(
            conv_and_pool if stem == "imagenet" else conv_alone,
            stem_conv=conv(in_channels, channels, size, stride=stride, layers=layers),
            stem_norm=layers.batch_norm(channels),
        )

    def add_blocks(
        self,
        features: int,
        channels: Sequence[int],
        depths: Sequence[int],
        *,
        stride: int = 1,
        drop_path: float,
        layers: Layers,
        **options: Any,
    ) -> int:
        """Append the blocks of all stages.

        Args:
          features: channels of the input.
          channels: of the blocks of each stage.
          depths: blocks in each stage.
          stride: of the first stage; that of the others is 2.
          drop_path: of the last block. It rises evenly from 0 at the first.
          layers: makes the layers.
          **options: of each block.

        Returns:
          Channels of the output.
        """
        rates = iter(drop_path_rates(drop_path, sum(depths)))
        for stage, (width, depth) in enumerate(zip(channels, depths, strict=True)):
            for index in range(depth):
                block = self.block(
                    *(features, width), stride=stride, layers=layers, **options
                )
                block.drop_path.rate = next(rates)
                name = f"stage{stage + 1}_block{index + 1}"
                self.add_piece(self.block.__call__, **{name: block})
                features, stride = width * self.block.expansion, 1
            stride = 2
        return features

    def add_head(self, features: int, head: Head, layers: Layers) -> None:
        """Append the layers after the blocks, which put out `features` channels."""
        self.add_piece(_head, head=head)


def conv_alone(
    conv: nnx.Conv, norm: BatchNorm, x: jax.Array, rngs: nnx.Rngs | None
) -> jax.Array:
    """Apply a convolution, a batch norm and a ReLU."""
    return nnx.relu(norm(conv(x)))


def conv_and_pool(
    conv: nnx.Conv, norm: BatchNorm, x: jax.Array, rngs: nnx.Rngs | None
) -> jax.Array:
    """Apply them, and halve rows and columns by maxima."""
    return pool(conv_alone(conv, norm, x, rngs))


def pool(x: jax.Array) -> jax.Array:
    """Take the maximum of each 3x3 window around every second pixel."""
    padding: Any = ((1, 1), (1, 1))  # Any: Flax annotates it as a string only.
    return nnx.max_pool(x, (3, 3), strides=(2, 2), padding=padding)


def _head(head: Head, x: jax.Array, rngs: nnx.Rngs | None) -> jax.Array:
    return head(x.mean((1, 2)), rngs)


class ResNet18(ResNet):
    block = BasicBlock
    depths = (2, 2, 2, 2)


class ResNet34(ResNet):
    block = BasicBlock
    depths = (3, 4, 6, 3)


class ResNet50(ResNet):
    block = Bottleneck
    depths = (3, 4, 6, 3)


class ResNet101(ResNet):
    block = Bottleneck
    depths = (3, 4, 23, 3)


class ResNet152(ResNet):
    block = Bottleneck
    depths = (3, 8, 36, 3)
