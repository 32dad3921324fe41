"""LeNet-5 (LeCun et al. 1998, "Gradient-based learning applied to document
recognition"), as it is used today: ReLU, max pool, all channels connected."""

import jax
from flax import nnx

from jaxtrain.models.base import Model
from jaxtrain.models.head import Head
from jaxtrain.models.layers import Layers
from jaxtrain.models.pools import flatten, max_pool


class LeNet(Model):
    """Two convolutions, three dense layers."""

    min_size = 12
    stride = 4

    def __init__(
        self, image_shape: tuple[int, int, int], num_outputs: int, *, layers: Layers
    ):
        height, width, channels = image_shape
        rows, columns = (height // 2 - 4) // 2, (width // 2 - 4) // 2
        self.add_piece(_block, conv1=layers.conv(channels, 6, 5, split="out"))
        self.add_piece(_block, conv2=layers.conv(6, 16, 5, padding=0, split="in"))
        self.add_piece(
            _dense, linear1=layers.linear(rows * columns * 16, 120, split="out")
        )
        self.add_piece(_dense, linear2=layers.linear(120, 84, split="in"))
        self.add_piece(Head.__call__, head=Head(84, num_outputs, 0.0, layers=layers))


def _block(conv: nnx.Conv, x: jax.Array, rngs: nnx.Rngs | None) -> jax.Array:
    return max_pool(nnx.relu(conv(x)))


def _dense(linear: nnx.Linear, x: jax.Array, rngs: nnx.Rngs | None) -> jax.Array:
    return nnx.relu(linear(flatten(x)))
