"""ResNets (He et al. 2015, arXiv:1512.03385), in the variant v1.5 (see `residual`)."""

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import jax
from flax import nnx

from jaxtrain.config.models import ResNetConfig
from jaxtrain.models.base import Model
from jaxtrain.models.batch_norm import BatchNorm
from jaxtrain.models.head import Head, mean_head
from jaxtrain.models.layers import Layers, drop_path_rates, he_fan_out, scale_channels
from jaxtrain.models.pools import max_pool_3x3
from jaxtrain.models.residual import (
    BasicBlock,
    Bottleneck,
    GroupedBottleneck,
    PoolingBasicBlock,
    PoolingBottleneck,
    ResidualBlock,
    SEBasicBlock,
    SEBottleneck,
    WideBottleneck,
)

Stem = Literal["imagenet", "cifar"]


class ResNet(Model):
    """A stem, stages of residual blocks, and global average pooling."""

    Options: ClassVar = ResNetConfig

    # With one row per device, XLA computes wrong gradients of convolutions.
    min_share = 2

    block: ClassVar[type[ResidualBlock]]
    # Number of blocks in each stage.
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
        max_stride: int | None = None,
    ):
        """Create the layers.

        Args:
          drop_path: Drop rate of stochastic depth in the last block.
          stem: `imagenet` (7x7 convolution with stride 2, and max pooling) or `cifar`
            (3x3 convolution).
          max_stride: Maximum output stride; strides that would exceed it are replaced
            by dilation. None means no maximum.
        """
        num_stages, convs = len(self.depths), without_bias(layers)
        shrunk = 4 if stem == "imagenet" else 1
        self.stride = shrunk * 2 ** (num_stages - 1)
        if max_stride is not None:
            self.stride = min(self.stride, max(shrunk, max_stride))
        features = scale_channels(64, width)
        self.add_stem(image_shape[2], features, stem, convs)
        channels = [scale_channels(64 * 2**i, width) for i in range(num_stages)]
        features = self.add_blocks(
            *(features, channels, self.depths),
            max_stride=self.stride // shrunk,
            drop_path=drop_path,
            layers=convs,
        )
        head = Head(features, num_outputs, dropout, layers=layers)
        self.add_head(features, head, layers)

    def add_stem(
        self, in_channels: int, channels: int, stem: Stem, layers: Layers
    ) -> None:
        """Append the pieces of the stem."""
        size, stride = (7, 2) if stem == "imagenet" else (3, 1)
        self.add_piece(
            conv_and_pool if stem == "imagenet" else conv_alone,
            stem_conv=layers.conv(in_channels, channels, size, stride=stride),
            stem_norm=layers.batch_norm(channels),
        )

    def add_blocks(
        self,
        features: int,
        channels: Sequence[int],
        depths: Sequence[int],
        *,
        stride: int = 1,
        max_stride: int | None = None,
        drop_path: float,
        layers: Layers,
        **options: Any,
    ) -> int:
        """Append the blocks of all stages; return the number of output channels.

        The stride is `stride` in the first stage, and 2 in each later stage. The drop
        rate of stochastic depth increases linearly from 0 to `drop_path` in the last
        block. `options` are passed to each block.

        Stages that would exceed the output stride `max_stride` have stride 1, and later
        blocks have dilated kernels instead (Chen et al. 2017, arXiv:1706.05587), as in
        torchvision.
        """
        rates = iter(drop_path_rates(drop_path, sum(depths)))
        reached, dilation = 1, 1
        for stage, (width, depth) in enumerate(zip(channels, depths, strict=True)):
            later = dilation
            if max_stride is not None and reached * stride > max_stride:
                later, stride = dilation * stride, 1
            reached *= stride
            for index in range(depth):
                block = self.block(
                    *(features, width),
                    stride=stride,
                    dilation=dilation,
                    layers=layers,
                    **options,
                )
                block.drop_path.rate = next(rates)
                name = f"stage{stage + 1}_block{index + 1}"
                self.add_piece(self.block.__call__, **{name: block})
                features, stride = width * self.block.expansion, 1
                dilation = later
            stride = 2
        return features

    def add_head(self, features: int, head: Head, layers: Layers) -> None:
        """Append the pieces after the blocks, which have `features` output channels."""
        self.add_piece(mean_head, head=head)


def without_bias(layers: Layers) -> Layers:
    """Return a factory of convolutions without bias, with He initialization."""
    return dataclasses.replace(layers, init=he_fan_out, conv_bias=False)


def conv_alone(
    conv: nnx.Conv, norm: BatchNorm, x: jax.Array, rngs: nnx.Rngs | None
) -> jax.Array:
    """Apply a convolution, a batch norm and a ReLU."""
    return norm(conv(x), relu=True)


def conv_and_pool(
    conv: nnx.Conv, norm: BatchNorm, x: jax.Array, rngs: nnx.Rngs | None
) -> jax.Array:
    """Apply a convolution, a batch norm, a ReLU and 3x3 max pooling."""
    return max_pool_3x3(conv_alone(conv, norm, x, rngs), stride=2, padding=1)


class ResNetD(ResNet):
    """ResNet-D (He et al. 2018, arXiv:1812.01187, figure 2).

    The stem `imagenet` has three 3x3 convolutions instead of a 7x7 convolution, and
    shortcuts have average pooling before the 1x1 convolution instead of a stride
    (`PoolingBlock`). The stem `cifar` is the same as in `ResNet`.
    """

    def add_stem(
        self, in_channels: int, channels: int, stem: Stem, layers: Layers
    ) -> None:
        if stem == "cifar":
            super().add_stem(in_channels, channels, stem, layers)
            return
        half = max(1, channels // 2)
        self.add_piece(
            conv_alone,
            stem1_conv=layers.conv(in_channels, half, 3, stride=2),
            stem1_norm=layers.batch_norm(half),
        )
        self.add_piece(
            conv_alone,
            stem2_conv=layers.conv(half, half, 3),
            stem2_norm=layers.batch_norm(half),
        )
        self.add_piece(
            conv_and_pool,
            stem3_conv=layers.conv(half, channels, 3),
            stem3_norm=layers.batch_norm(channels),
        )


ResNet18 = ResNet.variant(block=BasicBlock, depths=(2, 2, 2, 2))
ResNet34 = ResNet.variant(block=BasicBlock, depths=(3, 4, 6, 3))
ResNet50 = ResNet.variant(block=Bottleneck, depths=(3, 4, 6, 3))
ResNet101 = ResNet.variant(block=Bottleneck, depths=(3, 4, 23, 3))
ResNet152 = ResNet.variant(block=Bottleneck, depths=(3, 8, 36, 3))
ResNet18D = ResNetD.variant(block=PoolingBasicBlock, depths=(2, 2, 2, 2))
ResNet50D = ResNetD.variant(block=PoolingBottleneck, depths=(3, 4, 6, 3))
SEResNet18 = ResNet.variant(block=SEBasicBlock, depths=(2, 2, 2, 2))
SEResNet50 = ResNet.variant(block=SEBottleneck, depths=(3, 4, 6, 3))
WideResNet50x2 = ResNet.variant(block=WideBottleneck, depths=(3, 4, 6, 3))
ResNeXt50 = ResNet.variant(block=GroupedBottleneck, depths=(3, 4, 6, 3))
