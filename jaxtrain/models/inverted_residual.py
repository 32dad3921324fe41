"""Inverted residual blocks (Sandler et al. 2018, arXiv:1801.04381).

A block expands channels by a 1x1 convolution, applies a depthwise convolution, and
reduces channels by a 1x1 convolution without activation. Initialization is the same as
in TensorFlow's EfficientNet and in timm: the fan-out includes only the output channels
of one group, which is one channel in depthwise convolutions.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
from flax import nnx

from jaxtrain.models.activations import Activation
from jaxtrain.models.blocks import ConvNorm, SqueezeExcite
from jaxtrain.models.layers import Layers, drop_path, he_fan_in


class Squeeze(NamedTuple):
    """Hyperparameters of the squeeze-and-excitation in an architecture's blocks.

    Attributes:
      features: Function (input channels, expanded channels) -> number of squeezed
        features.
      activation: Activation function of the squeezed features.
      gate: Activation function of the gates, with values in 0..1.
    """

    features: Callable[[int, int], int]
    activation: Activation
    gate: Activation


@dataclass(frozen=True)
class InvertedStage:
    """Hyperparameters of a stage of blocks with equal numbers of output channels.

    Attributes:
      channels: Number of output channels at width 1.
      expansions: Expansion factor of each block.
      activation: Activation function within the blocks.
      stride: Stride of the first block; the others have stride 1.
      size: Kernel size of the depthwise convolutions, or of the fused convolutions.
      squeeze: Squeeze-and-excitation of the blocks. None disables it.
      fused: Whether one dense convolution replaces the expansion and the depthwise
        convolution (Fused-MBConv, arXiv:2104.00298). If the expansion factor is 1, the
        block has no other convolution.
    """

    channels: int
    expansions: tuple[float, ...]
    activation: Activation
    stride: int = 1
    size: int = 3
    squeeze: Squeeze | None = None
    fused: bool = False

    def parts(self, index: int) -> tuple[str, ...]:
        """Names of the layers of block `index`, in the order of computation."""
        expands = self.expansions[index] != 1
        if self.fused:
            return ("fused", "project") if expands else ("fused",)
        expand = ("expand",) if expands else ()
        squeeze = ("squeeze_excite",) if self.squeeze else ()
        return (*expand, "depthwise", *squeeze, "project")


class InvertedResidual(nnx.Module):
    """Inverted residual block, with a shortcut if input and output have the same shape.

    The expanded channels are split over the `model` axis.
    """

    def __init__(
        self,
        in_channels: int,
        channels: int,
        stage: InvertedStage,
        index: int,
        *,
        drop_path_rate: float,
        layers: Layers,
    ):
        """Create the layers of block `index` of a stage."""
        stride = stage.stride if index == 0 else 1
        hidden = round_channels(in_channels * stage.expansions[index])
        conv = partial(ConvNorm, activation=stage.activation, layers=layers)
        self.parts = stage.parts(index)
        if self.parts == ("fused",):
            self.fused = conv(in_channels, channels, stage.size, stride=stride)
        elif stage.fused:
            self.fused = conv(
                in_channels, hidden, stage.size, stride=stride, split="out"
            )
        else:
            if "expand" in self.parts:
                self.expand = conv(in_channels, hidden, 1, split="out")
            self.depthwise = conv(
                *(hidden, hidden, stage.size),
                stride=stride,
                groups=hidden,
                # In a depthwise convolution, the fan-in equals the fan-out of one
                # group, whereas JAX's "fan_out" includes all groups.
                init=he_fan_in,
                split="out",
            )
        if stage.squeeze is not None:
            features, activation, gate = stage.squeeze
            self.squeeze_excite = SqueezeExcite(
                *(hidden, features(in_channels, hidden)),
                activation=activation,
                gate=gate,
                split=True,
                layers=layers,
            )
        if "project" in self.parts:
            self.project = conv(hidden, channels, 1, activation=None, split="in")
        self.shortcut = stride == 1 and in_channels == channels
        self.drop_path = drop_path(drop_path_rate)

    def __call__(self, x: jax.Array, rngs: nnx.Rngs | None = None) -> jax.Array:
        y = x
        for part in self.parts:
            y = getattr(self, part)(y)
        return x + self.drop_path(y, rngs=rngs) if self.shortcut else y


def round_channels(channels: float) -> int:
    """Round to the nearest multiple of 8, but at least 8 and at least 0.9 * `channels`.

    TensorFlow's MobileNets and EfficientNets use this rule.
    """
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * channels else rounded
