"""MobileNetV2 (Sandler et al. 2018, arXiv:1801.04381) and V3 (Howard et al. 2019).

Defaults are the same as in timm and, for V2, in torchvision. torchvision's weights of
V3 need `norm_epsilon = 1e-3`; weights ported from TensorFlow also need `padding =
same`.
"""

from typing import ClassVar

import jax
from flax import nnx
from jax.nn import relu6

from jaxtrain.config.models import MobileNetConfig
from jaxtrain.models.activations import hard_sigmoid, hard_swish
from jaxtrain.models.head import Head
from jaxtrain.models.inverted_net import InvertedNet
from jaxtrain.models.inverted_residual import InvertedStage, Squeeze, round_channels
from jaxtrain.models.layers import Layers

# Squeeze-and-excitation reduces the expanded channels to a quarter.
SQUEEZE = Squeeze(
    features=lambda channels, hidden: round_channels(hidden / 4),
    activation=nnx.relu,
    gate=hard_sigmoid,
)


class MobileNetV2(InvertedNet):
    """MobileNetV2 (arXiv:1801.04381)."""

    Options: ClassVar = MobileNetConfig

    stem_channels = 32
    # As in the paper, widths below 1 do not reduce the channels of the last
    # convolution.
    least_width = 1.0
    # Table 2 of the paper.
    stages = (
        InvertedStage(16, (1,), relu6),
        InvertedStage(24, (6,) * 2, relu6, stride=2),
        InvertedStage(32, (6,) * 3, relu6, stride=2),
        InvertedStage(64, (6,) * 4, relu6, stride=2),
        InvertedStage(96, (6,) * 3, relu6),
        InvertedStage(160, (6,) * 3, relu6, stride=2),
        InvertedStage(320, (6,), relu6),
    )


class MobileNetV3(InvertedNet):
    """MobileNetV3 (arXiv:1905.02244), with a dense layer after global pooling."""

    Options: ClassVar = MobileNetConfig

    stem_channels = 16
    # Number of output features of the dense layer after pooling, at width 1. As in
    # timm, widths below 1 do not reduce it.
    features: ClassVar[int]

    def add_head(
        self, features: int, outputs: int, dropout: float, width: float, layers: Layers
    ) -> None:
        hidden = round_channels(self.features * max(1.0, width))
        dense = layers.linear(features, hidden)
        head = Head(hidden, outputs, dropout, layers=layers)
        self.add_piece(_head, dense=dense, head=head)


def _head(
    dense: nnx.Linear, head: Head, x: jax.Array, rngs: nnx.Rngs | None
) -> jax.Array:
    return head(hard_swish(dense(x.mean((1, 2)))), rngs)


# Tables 1 and 2 of the paper.
class MobileNetV3Large(MobileNetV3):
    last_channels, features = 960, 1280
    stages = (
        InvertedStage(16, (1,), nnx.relu),
        InvertedStage(24, (4, 3), nnx.relu, stride=2),
        InvertedStage(40, (3, 3, 3), nnx.relu, stride=2, size=5, squeeze=SQUEEZE),
        InvertedStage(80, (6, 2.5, 2.3, 2.3), hard_swish, stride=2),
        InvertedStage(112, (6, 6), hard_swish, squeeze=SQUEEZE),
        InvertedStage(160, (6, 6, 6), hard_swish, stride=2, size=5, squeeze=SQUEEZE),
    )


class MobileNetV3Small(MobileNetV3):
    last_channels, features = 576, 1024
    stages = (
        InvertedStage(16, (1,), nnx.relu, stride=2, squeeze=SQUEEZE),
        InvertedStage(24, (4.5, 3.67), nnx.relu, stride=2),
        InvertedStage(40, (4, 6, 6), hard_swish, stride=2, size=5, squeeze=SQUEEZE),
        InvertedStage(48, (3, 3), hard_swish, size=5, squeeze=SQUEEZE),
        InvertedStage(96, (6, 6, 6), hard_swish, stride=2, size=5, squeeze=SQUEEZE),
    )
