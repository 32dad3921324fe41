"""Base class of MobileNets and EfficientNets."""

import dataclasses
import math
from collections.abc import Iterator
from typing import ClassVar, Literal

from flax import nnx
from flax.typing import Initializer

from jaxtrain.models.base import Model
from jaxtrain.models.blocks import ConvNorm
from jaxtrain.models.head import Head, mean_head
from jaxtrain.models.inverted_residual import (
    InvertedResidual,
    InvertedStage,
    round_channels,
)
from jaxtrain.models.layers import Layers, drop_path_rates, he_fan_out


class InvertedNet(Model):
    """A stem, stages of inverted residual blocks, a convolution, and average pooling.

    Stem and last convolution use the activation of the last stage. With `stem = cifar`,
    the stem and the first strided stage have stride 1, for an output stride of 8
    pixels.
    """

    # Numbers of output channels of the stem and of the last convolution, at width 1.
    # The last convolution uses a width of at least `least_width`.
    stem_channels: ClassVar[int]
    last_channels: ClassVar[int] = 1280
    least_width: ClassVar[float] = 0.0
    stages: ClassVar[tuple[InvertedStage, ...]]
    # Factor by which the option `width` is multiplied.
    width_factor: ClassVar[float] = 1.0
    # Initializer of the last layer, as in torchvision.
    head_init: ClassVar[Initializer] = staticmethod(nnx.initializers.normal(0.01))

    base_dropout: ClassVar[float] = 0.2
    base_drop_path: ClassVar[float] = 0.0
    base_norm_epsilon: ClassVar[float] = 1e-5

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        num_outputs: int,
        *,
        layers: Layers,
        width: float = 1.0,
        dropout: float | None = None,
        drop_path: float | None = None,
        stem: Literal["imagenet", "cifar"] = "imagenet",
        norm_epsilon: float | None = None,
        padding: Literal["symmetric", "same"] = "symmetric",
    ):
        dropout = self.base_dropout if dropout is None else dropout
        drop_path = self.base_drop_path if drop_path is None else drop_path
        epsilon = self.base_norm_epsilon if norm_epsilon is None else norm_epsilon
        layers = dataclasses.replace(
            layers,
            init=he_fan_out,
            norm_epsilon=epsilon,
            same_padding=padding == "same",
        )
        width *= self.width_factor
        stem_stride = 2 if stem == "imagenet" else 1
        stages = self.stages if stem == "imagenet" else _without_a_stride(self.stages)
        self.stride = stem_stride * math.prod(stage.stride for stage in stages)
        activation = stages[-1].activation
        features = round_channels(self.stem_channels * width)
        self.add_piece(
            ConvNorm.__call__,
            stem=ConvNorm(
                *(image_shape[2], features, 3),
                stride=stem_stride,
                activation=activation,
                layers=layers,
            ),
        )
        blocks = list(self.block_names())
        rates = drop_path_rates(drop_path, len(blocks))
        for (name, number, index), rate in zip(blocks, rates, strict=True):
            channels = round_channels(stages[number].channels * width)
            block = InvertedResidual(
                *(features, channels, stages[number], index),
                drop_path_rate=rate,
                layers=layers,
            )
            self.add_piece(InvertedResidual.__call__, **{name: block})
            features = channels
        channels = round_channels(self.last_channels * max(self.least_width, width))
        last = ConvNorm(features, channels, 1, activation=activation, layers=layers)
        self.add_piece(ConvNorm.__call__, last=last)
        layers = dataclasses.replace(layers, init=self.head_init)
        self.add_head(channels, num_outputs, dropout, width, layers)

    def add_head(
        self, features: int, outputs: int, dropout: float, width: float, layers: Layers
    ) -> None:
        """Append the pieces after the last convolution."""
        head = Head(features, outputs, dropout, layers=layers)
        self.add_piece(mean_head, head=head)

    @classmethod
    def block_names(cls) -> Iterator[tuple[str, int, int]]:
        """Yield (name, index of its stage, index in the stage) for each block."""
        for number, stage in enumerate(cls.stages):
            for index in range(len(stage.expansions)):
                yield f"stage{number + 1}_block{index + 1}", number, index


def _without_a_stride(stages: tuple[InvertedStage, ...]) -> tuple[InvertedStage, ...]:
    """Replace the stride of the first strided stage by 1."""
    first = next(i for i, stage in enumerate(stages) if stage.stride > 1)
    changed = dataclasses.replace(stages[first], stride=1)
    return (*stages[:first], changed, *stages[first + 1 :])
