"""EfficientNets (Tan and Le 2019, arXiv:1905.11946).

Defaults are torchvision's and timm's. Weights that came from TensorFlow belong to
`padding = same` and norms with epsilon 1e-3.
"""

import math
from typing import ClassVar

from flax import nnx

from jaxtrain.models.activations import silu
from jaxtrain.models.head import Head, mean_head
from jaxtrain.models.inverted_net import (
    InvertedNet,
    Sides,
    Stem,
    with_norms,
)
from jaxtrain.models.inverted_residual import InvertedStage, Squeeze, round_channels
from jaxtrain.models.layers import Layers

# A quarter of the channels that the block gets.
SQUEEZE = Squeeze(
    features=lambda channels, hidden: channels // 4,
    activation=silu,
    gate=nnx.sigmoid,
)
# Of the last layer, as in TensorFlow's: uniform up to 1 / sqrt(outputs).
head_init = nnx.initializers.variance_scaling(1 / 3, "fan_out", "uniform")


class EfficientNet(InvertedNet):
    stem_channels = 32
    # Factor on all channels, at width 1.
    base_width: ClassVar[float]
    # Of the paper, for each net another.
    base_dropout: ClassVar[float]

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        num_outputs: int,
        *,
        layers: Layers,
        width: float = 1.0,
        dropout: float | None = None,
        drop_path: float = 0.2,
        stem: Stem = "imagenet",
        norm_epsilon: float = 1e-5,
        padding: Sides = "symmetric",
    ):
        layers = with_norms(layers, norm_epsilon, padding)
        width *= self.base_width
        features = round_channels(1280 * width)
        self.add_convolutions(
            *(image_shape[2], features, silu),
            layers=layers,
            width=width,
            drop_path=drop_path,
            stem=stem,
        )
        dropout = self.base_dropout if dropout is None else dropout
        head = Head(features, num_outputs, dropout, layers=layers, init=head_init)
        self.add_piece(mean_head, head=head)


def _stages(depth: float) -> tuple[InvertedStage, ...]:
    """Return the stages of B0, table 1 of the paper, with `depth` times the blocks."""

    def stage(
        channels: int, blocks: int, stride: int, size: int, expansion: float = 6
    ) -> InvertedStage:
        return InvertedStage(
            channels=channels,
            expansions=(expansion,) * math.ceil(depth * blocks),
            stride=stride,
            size=size,
            activation=silu,
            squeeze=SQUEEZE,
        )

    return (
        stage(16, 1, 1, 3, expansion=1),
        stage(24, 2, 2, 3),
        stage(40, 2, 2, 5),
        stage(80, 3, 2, 3),
        stage(112, 3, 1, 5),
        stage(192, 4, 2, 5),
        stage(320, 1, 1, 3),
    )


class EfficientNetB0(EfficientNet):
    base_width, base_dropout, stages = 1.0, 0.2, _stages(1.0)


class EfficientNetB1(EfficientNet):
    base_width, base_dropout, stages = 1.0, 0.2, _stages(1.1)


class EfficientNetB2(EfficientNet):
    base_width, base_dropout, stages = 1.1, 0.3, _stages(1.2)


class EfficientNetB3(EfficientNet):
    base_width, base_dropout, stages = 1.2, 0.3, _stages(1.4)


class EfficientNetB4(EfficientNet):
    base_width, base_dropout, stages = 1.4, 0.4, _stages(1.8)
