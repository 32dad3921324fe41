"""ResNets (He et al. 2015, arXiv:1512.03385), in the variant known as v1.5.

Their relatives are in the files beside this one: they have other blocks, stems or
heads. Blocks, and how they are initialised, are in `residual.py`.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import jax
from flax import nnx

from jaxtrain.models.base import Model
from jaxtrain.models.batch_norm import BatchNorm
from jaxtrain.models.head import Head, mean_head
from jaxtrain.models.layers import Layers, drop_path_rates, scale_channels
from jaxtrain.models.pools import max_pool_3x3
from jaxtrain.models.residual import BasicBlock, Bottleneck, ResidualBlock, conv

Stem = Literal["imagenet", "cifar"]


class ResNet(Model):
    """A stem, stages of residual blocks, and the mean over the image."""

    # Of a convolution of one row a device, XLA computes the gradient wrongly.
    min_share = 2

    block: ClassVar[type[ResidualBlock]]
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
        self.add_piece(mean_head, head=head)


def conv_alone(
    conv: nnx.Conv, norm: BatchNorm, x: jax.Array, rngs: nnx.Rngs | None
) -> jax.Array:
    """Apply a convolution, a batch norm and a ReLU."""
    return norm(conv(x), relu=True)


def conv_and_pool(
    conv: nnx.Conv, norm: BatchNorm, x: jax.Array, rngs: nnx.Rngs | None
) -> jax.Array:
    """Apply them, and halve rows and columns by maxima."""
    return max_pool_3x3(conv_alone(conv, norm, x, rngs), stride=2, padding=1)


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
