"""What MobileNets and EfficientNets share: all up to their last convolution."""

import dataclasses
import math
from collections.abc import Iterator
from typing import ClassVar, Literal

from jaxtrain.models.activations import Activation
from jaxtrain.models.base import Model
from jaxtrain.models.conv_norm import ConvNorm
from jaxtrain.models.initializers import he_fan_out
from jaxtrain.models.inverted_residual import (
    InvertedResidual,
    InvertedStage,
    round_channels,
)
from jaxtrain.models.layers import Layers, drop_path_rates

Stem = Literal["imagenet", "cifar"]
# Where convolutions with a stride pad an image (see `Layers.conv`).
Sides = Literal["symmetric", "same"]


class InvertedNet(Model):
    """A net of inverted residual blocks, up to its last convolution.

    Subclasses add the last layers, and name the options that they take.
    """

    # Channels of the stem, at width 1.
    stem_channels: ClassVar[int]
    stages: ClassVar[tuple[InvertedStage, ...]]

    def add_convolutions(
        self,
        channels: int,
        last_channels: int,
        activation: Activation,
        *,
        layers: Layers,
        width: float,
        drop_path: float,
        stem: Stem,
    ) -> None:
        """Add the pieces up to the last convolution.

        Args:
          channels: of the image.
          last_channels: of the last convolution.
          activation: of the stem and the last convolution.
          layers: makes the layers.
          width: factor on the channels of stem and stages, which are rounded.
          drop_path: rate of stochastic depth of the last block.
          stem: cifar: neither the stem nor the first block with a stride has one, so
            that 32 pixels end as 4.
        """
        stem_stride = 2 if stem == "imagenet" else 1
        stages = self.stages if stem == "imagenet" else _without_a_stride(self.stages)
        self.stride = stem_stride * math.prod(stage.stride for stage in stages)
        features = round_channels(self.stem_channels * width)
        self.add_piece(
            ConvNorm.__call__,
            stem=ConvNorm(
                *(channels, features, 3),
                stride=stem_stride,
                activation=activation,
                init=he_fan_out,
                layers=layers,
            ),
        )
        blocks = list(self.block_names())
        rates = drop_path_rates(drop_path, len(blocks))
        for (name, number, index), rate in zip(blocks, rates, strict=True):
            stage = stages[number]
            out_channels = round_channels(stage.channels * width)
            block = InvertedResidual(
                *(features, out_channels, stage, index),
                drop_path_rate=rate,
                layers=layers,
            )
            self.add_piece(InvertedResidual.__call__, **{name: block})
            features = out_channels
        last = ConvNorm(
            *(features, last_channels, 1),
            activation=activation,
            init=he_fan_out,
            layers=layers,
        )
        self.add_piece(ConvNorm.__call__, last=last)

    @classmethod
    def block_names(cls) -> Iterator[tuple[str, int, int]]:
        """Yield the name, the stage and the index in the stage of each block."""
        for number, stage in enumerate(cls.stages):
            for index in range(len(stage.expansions)):
                yield f"stage{number + 1}_block{index + 1}", number, index


def with_norms(layers: Layers, epsilon: float, padding: Sides = "symmetric") -> Layers:
    """Return what makes the layers of a family that has these options."""
    return dataclasses.replace(
        layers, norm_epsilon=epsilon, same_padding=padding == "same"
    )


def _without_a_stride(stages: tuple[InvertedStage, ...]) -> tuple[InvertedStage, ...]:
    """Return the stages, the first of which that has a stride has none."""
    first = next(i for i, stage in enumerate(stages) if stage.stride > 1)
    changed = dataclasses.replace(stages[first], stride=1)
    return (*stages[:first], changed, *stages[first + 1 :])
