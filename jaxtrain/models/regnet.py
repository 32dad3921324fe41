"""RegNetY (Radosavovic et al. 2020, arXiv:2003.13678).

Channels and depths of the stages are derived from the total depth and the parameters
`w_0`, `w_a` and `w_m` by a quantized linear function (section 3.3). As in timm, the
scale of the last batch norm in each block is initialized to 0.
"""

from itertools import groupby
from typing import Any, ClassVar

import jax
import numpy as np
from flax import nnx

from jaxtrain.config.models import RegNetConfig
from jaxtrain.models.blocks import SqueezeExcite
from jaxtrain.models.head import Head
from jaxtrain.models.layers import Layers, scale_channels
from jaxtrain.models.residual import Bottleneck
from jaxtrain.models.resnet import ResNet, Stem, conv_alone, without_bias

# Initializer of the last layer, as in timm, torchvision and the authors' code (pycls).
_head_init = nnx.initializers.normal(0.01)


class RegNetBlock(Bottleneck):
    """Residual block: bottleneck ratio 1, squeeze-and-excitation before conv3."""

    expansion = 1

    def __init__(self, *args: Any, group_width: int, **options: Any):
        self.group_width = group_width
        super().__init__(*args, **options)

    def inner(self, channels: int) -> tuple[int, int]:
        return channels, channels // min(self.group_width, channels)

    def add_residual(
        self, features: int, channels: int, stride: int, dilation: int, layers: Layers
    ) -> None:
        super().add_residual(features, channels, stride, dilation, layers)
        # The number of squeezed features is a quarter of the block's input channels.
        squeezed, (_, groups) = max(1, round(features / 4)), self.inner(channels)
        self.se = SqueezeExcite(channels, squeezed, layers=layers, split=groups > 1)

    def inside(self, x: jax.Array) -> jax.Array:
        return self.se(super().inside(x))


class RegNet(ResNet):
    """A 3x3 convolution, stages of bottlenecks, and global average pooling."""

    Options: ClassVar = RegNetConfig

    block = RegNetBlock
    # Total number of blocks.
    depth: ClassVar[int]
    # w_0: number of channels of the first block. w_a: increment per block. w_m: base of
    # the powers by which w_0 is multiplied in later stages.
    w_0: ClassVar[int]
    w_a: ClassVar[float]
    w_m: ClassVar[float]
    # Number of channels per group.
    group_width: ClassVar[int]
    # The channels of a stage are rounded to the nearest multiple of the group width, or
    # up if rounding down would remove a larger fraction of the channels than this.
    max_loss: ClassVar[float] = 1.0

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
        channels, depths = zip(*self.stages(), strict=True)
        # For small images, the stem and the first stage have stride 1.
        stride, convs = 2 if stem == "imagenet" else 1, without_bias(layers)
        self.stride = stride**2 * 2 ** (len(depths) - 1)
        features = scale_channels(32, width)
        self.add_piece(
            conv_alone,
            stem_conv=convs.conv(image_shape[2], features, 3, stride=stride),
            stem_norm=convs.batch_norm(features),
        )
        features = self.add_blocks(
            features,
            [self._full_groups(scale_channels(c, width)) for c in channels],
            depths,
            stride=stride,
            drop_path=drop_path,
            group_width=self.group_width,
            layers=convs,
        )
        head = Head(features, num_outputs, dropout, layers=layers, init=_head_init)
        self.add_head(features, head, layers)

    @classmethod
    def stages(cls) -> list[tuple[int, int]]:
        """Number of channels and number of blocks of each stage (equations 2 to 4)."""
        linear = cls.w_0 + cls.w_a * np.arange(cls.depth)
        steps = np.round(np.log(linear / cls.w_0) / np.log(cls.w_m))
        channels = 8 * np.round(cls.w_0 * cls.w_m**steps / 8)
        return [(int(c), len(list(blocks))) for c, blocks in groupby(channels)]

    def _full_groups(self, channels: int) -> int:
        group = min(self.group_width, channels)
        rounded = (channels + group // 2) // group * group
        return rounded if rounded >= (1 - self.max_loss) * channels else rounded + group


_Y_8GF = {"depth": 17, "w_0": 192, "w_a": 76.82, "w_m": 2.19, "group_width": 56}
RegNetY3GF = RegNet.variant(depth=21, w_0=80, w_a=42.63, w_m=2.66, group_width=24)
RegNetY4GF = RegNet.variant(depth=22, w_0=96, w_a=31.41, w_m=2.24, group_width=64)
# For the first stage, torchvision rounds 192 channels to 224; the paper and timm's
# regnety_080 round to 168.
RegNetY8GF = RegNet.variant(**_Y_8GF, max_loss=0.1)
RegNetY8GFPaper = RegNet.variant(**_Y_8GF)
