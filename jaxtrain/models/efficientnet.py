"""EfficientNet (Tan and Le 2019, arXiv:1905.11946) and V2-S (2021, arXiv:2104.00298).

Defaults are the same as in torchvision and, except for V2-S, in timm. Weights ported
from TensorFlow need `padding = same` and a batch-norm epsilon of 1e-3; V2-S weights
that were trained with timm need a batch-norm epsilon of 1e-5.
"""

import math
from functools import partial
from typing import ClassVar

from flax import nnx

from jaxtrain.config.models import EfficientNetConfig
from jaxtrain.models.activations import silu
from jaxtrain.models.inverted_net import InvertedNet
from jaxtrain.models.inverted_residual import InvertedStage, Squeeze

# Squeeze-and-excitation whose bottleneck has a quarter of the block's input channels.
SQUEEZE = Squeeze(
    features=lambda channels, hidden: channels // 4, activation=silu, gate=nnx.sigmoid
)
_stage = partial(InvertedStage, activation=silu, squeeze=SQUEEZE)
_fused = partial(InvertedStage, activation=silu, fused=True)


class EfficientNet(InvertedNet):
    """Base class of EfficientNets; variants scale width, depth and dropout."""

    Options: ClassVar = EfficientNetConfig

    stem_channels = 32
    # Uniform between -1 / sqrt(fan_out) and 1 / sqrt(fan_out), as in TensorFlow's
    # implementation.
    head_init = staticmethod(
        nnx.initializers.variance_scaling(1 / 3, "fan_out", "uniform")
    )
    base_drop_path = 0.2


def scaled_stages(depth: float) -> tuple[InvertedStage, ...]:
    """Stages of B0 (table 1 of the paper), with `depth` times as many blocks."""

    def blocks(expansion: int, num: int) -> tuple[float, ...]:
        return (expansion,) * math.ceil(depth * num)

    return (
        _stage(16, blocks(1, 1)),
        _stage(24, blocks(6, 2), stride=2),
        _stage(40, blocks(6, 2), stride=2, size=5),
        _stage(80, blocks(6, 3), stride=2),
        _stage(112, blocks(6, 3), size=5),
        _stage(192, blocks(6, 4), stride=2, size=5),
        _stage(320, blocks(6, 1)),
    )


class EfficientNetV2S(EfficientNet):
    stem_channels = 24
    base_norm_epsilon = 1e-3
    # Table 4 of the paper.
    stages = (
        _fused(24, (1,) * 2),
        _fused(48, (4,) * 4, stride=2),
        _fused(64, (4,) * 4, stride=2),
        _stage(128, (4,) * 6, stride=2),
        _stage(160, (6,) * 9),
        _stage(256, (6,) * 15, stride=2),
    )


EfficientNetB0 = EfficientNet.variant(stages=scaled_stages(1.0))
EfficientNetB1 = EfficientNet.variant(stages=scaled_stages(1.1))
EfficientNetB2 = EfficientNet.variant(
    width_factor=1.1, stages=scaled_stages(1.2), base_dropout=0.3
)
EfficientNetB3 = EfficientNet.variant(
    width_factor=1.2, stages=scaled_stages(1.4), base_dropout=0.3
)
EfficientNetB4 = EfficientNet.variant(
    width_factor=1.4, stages=scaled_stages(1.8), base_dropout=0.4
)
