"""Wide ResNets for small images (Zagoruyko and Komodakis 2016, arXiv:1605.07146).

The depth counts the convolutions: the first one, two in each block of three stages, and
the three of the shortcuts that change the shape. Of another depth and width, one line
each suffices:

    class WideResNet16x8(WideResNet):
        depth, widening = 16, 8
"""

from typing import ClassVar

import jax
from flax import nnx

from jaxtrain.models.head import Head
from jaxtrain.models.layers import Layers, scale_channels
from jaxtrain.models.preact_resnet import PreActBasicBlock, PreActResNet


class WideBlock(PreActBasicBlock):
    """Two 3x3 convolutions, between which features are dropped at random."""

    def __init__(
        self,
        in_channels: int,
        channels: int,
        *,
        stride: int,
        dropout: float = 0.0,
        layers: Layers,
    ):
        super().__init__(in_channels, channels, stride=stride, layers=layers)
        self.dropout = nnx.Dropout(dropout)

    def residual(self, x: jax.Array, rngs: nnx.Rngs | None) -> jax.Array:
        x = self.norm2(self.conv1(x), relu=True)
        return self.conv2(self.dropout(x, rngs=rngs))


class WideResNet(PreActResNet):
    """A 3x3 convolution, three stages, and the mean over the image."""

    block = WideBlock
    depth: ClassVar[int]
    # Channels of the first stage over 16.
    widening: ClassVar[int]

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        num_outputs: int,
        *,
        layers: Layers,
        width: float = 1.0,
        dropout: float = 0.0,
        drop_path: float = 0.0,
    ):
        """Create the layers.

        Args:
          image_shape: Height, width and channels.
          num_outputs: Number of outputs for an image.
          layers: Factory of the layers.
          width: Factor on the channels.
          dropout: Rate of dropout in each block; the paper takes 0.3 for some of its
            results.
          drop_path: Rate of stochastic depth in the last block (see
            `ResNet.add_blocks`).
        """
        num_blocks, rest = divmod(self.depth - 4, 6)
        assert rest == 0, f"depth {self.depth} is not 4 more than a multiple of 6"
        self.stride = 4
        features = scale_channels(16, width)
        self.add_stem(image_shape[2], features, "cifar", layers)
        channels = [scale_channels(16 * self.widening * 2**i, width) for i in range(3)]
        features = self.add_blocks(
            *(features, channels, [num_blocks] * 3),
            drop_path=drop_path,
            dropout=dropout,
            layers=layers,
        )
        head = Head(features, num_outputs, 0.0, layers=layers)
        self.add_head(features, head, layers)


class WideResNet28x10(WideResNet):
    depth, widening = 28, 10
