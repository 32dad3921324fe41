"""A small convolutional network with batch norm: a first model for 28 to 32 pixels."""

import jax
from flax import nnx

from jaxtrain.models.layers import (
    Head,
    Layers,
    Model,
    Piece,
    flatten,
    max_pool,
    scale_channels,
)


class ConvNet(Model):
    """Two blocks of convolution, batch norm, ReLU and pool, and a linear layer."""

    min_size = 4
    stride = 4

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        num_classes: int,
        *,
        layers: Layers,
        width: float = 1.0,
        dropout: float = 0.0,
    ):
        rows, columns, in_channels = image_shape
        channels = scale_channels(64, width)
        # No biases: batch norm would subtract them again.
        self.conv1 = layers.conv(in_channels, channels, 3, bias=False)
        self.norm1 = layers.batch_norm(channels)
        self.conv2 = layers.conv(channels, channels, 3, bias=False)
        self.norm2 = layers.batch_norm(channels)
        features = (rows // 4) * (columns // 4) * channels
        self.head = Head(features, num_classes, dropout, layers=layers)

    def pieces(self, rngs: nnx.Rngs | None = None) -> list[Piece]:
        return [
            Piece(("conv1", "norm1"), self._block1),
            Piece(("conv2", "norm2"), self._block2),
            Piece(("head",), lambda x: self.head(flatten(x), rngs=rngs)),
        ]

    def _block1(self, x: jax.Array) -> jax.Array:
        return max_pool(nnx.relu(self.norm1(self.conv1(x))))

    def _block2(self, x: jax.Array) -> jax.Array:
        return max_pool(nnx.relu(self.norm2(self.conv2(x))))
