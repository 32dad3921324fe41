"""ResNet-D: no stride skips pixels (He et al. 2018, arXiv:1812.01187, figure 2).

The stem is three 3x3 convolutions instead of one 7x7, and shortcuts take means before
their 1x1 convolution instead of a stride. With the stem for small images, which is one
3x3 convolution without a stride anyway, only the shortcuts differ.
"""

import jax

from jaxtrain.models.layers import Layers
from jaxtrain.models.pools import average_pool
from jaxtrain.models.residual import BasicBlock, Bottleneck, ResidualBlock, conv
from jaxtrain.models.resnet import ResNet, Stem, conv_alone, conv_and_pool


class PoolingBlock(ResidualBlock):
    """Takes means of 2x2 pixels on the shortcut of another block: first of its bases.

    Where rows or columns are odd, the last means are of fewer pixels, as in timm.
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
    """Two 3x3 convolutions, and means on the shortcut."""


class PoolingBottleneck(PoolingBlock, Bottleneck):
    """A 1x1, a 3x3 and a 1x1 convolution, and means on the shortcut."""


class ResNetD(ResNet):
    """A stem of three convolutions, and blocks that pool on their shortcuts."""

    def add_stem(
        self, in_channels: int, channels: int, stem: Stem, layers: Layers
    ) -> None:
        if stem == "cifar":
            super().add_stem(in_channels, channels, stem, layers)
            return
        half = max(1, channels // 2)
        self.add_piece(
            conv_alone,
            stem1_conv=conv(in_channels, half, 3, stride=2, layers=layers),
            stem1_norm=layers.batch_norm(half),
        )
        self.add_piece(
            conv_alone,
            stem2_conv=conv(half, half, 3, layers=layers),
            stem2_norm=layers.batch_norm(half),
        )
        self.add_piece(
            conv_and_pool,
            stem3_conv=conv(half, channels, 3, layers=layers),
            stem3_norm=layers.batch_norm(channels),
        )


class ResNet18D(ResNetD):
    block = PoolingBasicBlock
    depths = (2, 2, 2, 2)


class ResNet50D(ResNetD):
    block = PoolingBottleneck
    depths = (3, 4, 6, 3)
