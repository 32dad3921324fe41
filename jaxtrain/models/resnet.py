"""ResNets (He et al. 2015, arXiv:1512.03385), in the variant known as v1.5.

As in torchvision, a bottleneck strides in its 3x3 convolution, not in its first 1x1.
The last batch norm of each block starts at scale 0, so that a block starts as its
shortcut (Goyal et al. 2017, arXiv:1706.02677).
"""

from collections.abc import Iterator
from typing import Any, ClassVar, Literal

import jax
from flax import nnx

from jaxtrain.models.base import Model
from jaxtrain.models.batch_norm import BatchNorm
from jaxtrain.models.head import Head
from jaxtrain.models.layers import Layers, Split, scale_channels

# Keeps the variance of the gradients from layer to layer (He et al. 2015,
# arXiv:1502.01852, equation 14).
he_normal = nnx.initializers.variance_scaling(2.0, "fan_out", "normal")


def conv(
    in_channels: int,
    channels: int,
    size: int,
    *,
    stride: int = 1,
    split: Split | None = None,
    layers: Layers,
) -> nnx.Conv:
    """Make a convolution that a batch norm follows."""
    return layers.conv(
        in_channels,
        channels,
        size,
        stride=stride,
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
            self.shortcut_conv = conv(
                in_channels, out_channels, 1, stride=stride, layers=layers
            )
            self.shortcut_norm = layers.batch_norm(out_channels)

    def __call__(self, x: jax.Array, rngs: nnx.Rngs | None = None) -> jax.Array:
        shortcut = self.shortcut_norm(self.shortcut_conv(x)) if self.project else x
        return nnx.relu(self.residual(x) + shortcut)

    def residual(self, x: jax.Array) -> jax.Array:
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

    def residual(self, x: jax.Array) -> jax.Array:
        x = nnx.relu(self.norm1(self.conv1(x)))
        return self.norm2(self.conv2(x))


class Bottleneck(Block):
    """A 1x1, a 3x3 and a 1x1 convolution; the last has four times the channels."""

    expansion = 4

    def __init__(self, in_channels: int, channels: int, *, stride: int, layers: Layers):
        super().__init__(in_channels, channels, stride=stride, layers=layers)
        out_channels = channels * self.expansion
        self.conv1 = conv(in_channels, channels, 1, split="out", layers=layers)
        self.norm1 = layers.batch_norm(channels, split=True)
        self.conv2 = conv(
            channels, channels, 3, stride=stride, split="in", layers=layers
        )
        self.norm2 = layers.batch_norm(channels)
        # Whole: split, it would need a reduction of its own, of four times the
        # channels.
        self.conv3 = conv(channels, out_channels, 1, layers=layers)
        self.norm3 = layers.batch_norm(out_channels, scale=0.0)

    def residual(self, x: jax.Array) -> jax.Array:
        x = nnx.relu(self.norm1(self.conv1(x)))
        x = nnx.relu(self.norm2(self.conv2(x)))
        return self.norm3(self.conv3(x))


class ResNet(Model):
    """A stem, four stages of residual blocks, and the mean over the image."""

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
        stem: Literal["imagenet", "cifar"] = "imagenet",
    ):
        self.stride = 32 if stem == "imagenet" else 8
        size, stride = (7, 2) if stem == "imagenet" else (3, 1)
        features = scale_channels(64, width)
        self.add_piece(
            _imagenet_stem if stem == "imagenet" else _stem,
            stem_conv=conv(
                image_shape[2], features, size, stride=stride, layers=layers
            ),
            stem_norm=layers.batch_norm(features),
        )
        for name, stage, index in self._block_names():
            channels = scale_channels(64 * 2**stage, width)
            stride = 2 if stage > 0 and index == 0 else 1
            block = self.block(features, channels, stride=stride, layers=layers)
            self.add_piece(Block.__call__, **{name: block})
            features = channels * self.block.expansion
        self.add_piece(_head, head=Head(features, num_outputs, dropout, layers=layers))

    def _block_names(self) -> Iterator[tuple[str, int, int]]:
        """Yield the name, the stage and the index in the stage of each block."""
        for stage, depth in enumerate(self.depths):
            for index in range(depth):
                yield f"stage{stage + 1}_block{index + 1}", stage, index


def _stem(
    conv: nnx.Conv, norm: BatchNorm, images: jax.Array, rngs: nnx.Rngs | None
) -> jax.Array:
    return nnx.relu(norm(conv(images)))


def _imagenet_stem(
    conv: nnx.Conv, norm: BatchNorm, images: jax.Array, rngs: nnx.Rngs | None
) -> jax.Array:
    padding: Any = ((1, 1), (1, 1))  # Any: Flax annotates it as a string only.
    x = _stem(conv, norm, images, rngs)
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
