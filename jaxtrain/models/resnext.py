"""ResNets with more channels inside their bottlenecks: wide ones, and ResNeXt.

Zagoruyko and Komodakis 2016, arXiv:1605.07146; Xie et al. 2016, arXiv:1611.05431.
"""

from typing import Any

from jaxtrain.models.residual import Bottleneck
from jaxtrain.models.resnet import ResNet


class WideBottleneck(Bottleneck):
    """Twice the channels inside."""

    def __init__(self, in_channels: int, channels: int, **options: Any):
        super().__init__(in_channels, channels, inner=2 * channels, **options)


class GroupedBottleneck(Bottleneck):
    """Twice the channels inside, in 32 groups: 4 each, where `channels` are 64."""

    def __init__(self, in_channels: int, channels: int, **options: Any):
        inner = 32 * max(1, round(channels / 16))
        super().__init__(in_channels, channels, inner=inner, groups=32, **options)


class WideResNet50x2(ResNet):
    block = WideBottleneck
    depths = (3, 4, 6, 3)


class ResNeXt50x32x4d(ResNet):
    block = GroupedBottleneck
    depths = (3, 4, 6, 3)
