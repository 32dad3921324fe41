"""ResNets with squeeze-and-excitation (Hu et al. 2018, arXiv:1709.01507).

As in timm's `seresnet`: at the end of each residual branch, after its last batch norm.
"""

from typing import Any

import jax
from flax import nnx

from jaxtrain.models.initializers import he_fan_out
from jaxtrain.models.layers import Layers
from jaxtrain.models.residual import BasicBlock, Bottleneck, ResidualBlock
from jaxtrain.models.resnet import ResNet
from jaxtrain.models.squeeze_excite import SqueezeExcite


class SEBlock(ResidualBlock):
    """Gates what another block puts out before the sum: first of its bases."""

    def __init__(self, in_channels: int, channels: int, *, layers: Layers, **rest: Any):
        super().__init__(in_channels, channels, layers=layers, **rest)
        out_channels = channels * self.expansion
        # A sixteenth of the channels, rounded to a multiple of 8.
        squeezed = max(8, (out_channels // 16 + 4) // 8 * 8)
        # Initialised as the convolutions, as timm does.
        self.se = SqueezeExcite(out_channels, squeezed, layers=layers, init=he_fan_out)

    def residual(self, x: jax.Array, rngs: nnx.Rngs | None) -> jax.Array:
        return self.se(super().residual(x, rngs))


class SEBasicBlock(SEBlock, BasicBlock):
    """Two 3x3 convolutions and a gate."""


class SEBottleneck(SEBlock, Bottleneck):
    """A 1x1, a 3x3 and a 1x1 convolution and a gate."""


class SEResNet18(ResNet):
    block = SEBasicBlock
    depths = (2, 2, 2, 2)


class SEResNet50(ResNet):
    block = SEBottleneck
    depths = (3, 4, 6, 3)
