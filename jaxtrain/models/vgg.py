"""VGG (Simonyan and Zisserman 2014, arXiv:1409.1556), with and without batch norm.

As in torchvision, the activations after the convolutions are pooled to 7x7 pixels for
any image size. Convolutions have He initialization, while the paper initializes them
from a shallower trained network.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any, ClassVar

import jax
from flax import nnx

from jaxtrain.config.models import VGGConfig
from jaxtrain.models.base import Model
from jaxtrain.models.head import Head
from jaxtrain.models.layers import Layers, Split, he_fan_out, scale_channels
from jaxtrain.models.pools import adaptive_average_pool, flatten, max_pool

CHANNELS = (64, 128, 256, 512, 512)
# Height and width of the input of the first dense layer, in pixels.
POOLED = 7

normal = nnx.initializers.normal(0.01)


class Dense(nnx.Module):
    """Dense layer, ReLU and dropout."""

    def __init__(
        self,
        in_features: int,
        features: int,
        dropout: float,
        *,
        split: Split,
        layers: Layers,
    ):
        self.linear = layers.linear(in_features, features, split=split)
        self.dropout = nnx.Dropout(dropout)

    def __call__(self, x: jax.Array, rngs: nnx.Rngs | None) -> jax.Array:
        return self.dropout(nnx.relu(self.linear(x)), rngs=rngs)


class VGG(Model):
    """Five stages of 3x3 convolutions and max pooling, then three dense layers."""

    Options: ClassVar = VGGConfig

    min_size = 32
    stride = 32

    # Number of convolutions in each stage.
    depths: ClassVar[tuple[int, ...]]
    batch_norm: ClassVar[bool] = False

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        num_outputs: int,
        *,
        layers: Layers,
        width: float = 1.0,
        dropout: float = 0.5,
    ):
        layers = dataclasses.replace(layers, init=normal)
        channels = image_shape[2]
        blocks = list(self.block_numbers())
        for number, (stage, index) in enumerate(blocks):
            split: Split | None = "in" if number % 2 else "out"
            if number == len(blocks) - 1 and split == "out":
                split = None  # No "in" layer would follow this "out" layer.
            features = scale_channels(CHANNELS[stage - 1], width)
            name = f"stage{stage}_conv{index}"
            conv = layers.conv(channels, features, 3, init=he_fan_out, split=split)
            made: dict[str, Any] = {name: conv}
            if self.batch_norm:
                norm = layers.batch_norm(features, split=split == "out")
                made[name.replace("conv", "norm")] = norm
            ends_stage = index == self.depths[stage - 1]
            self.add_piece(_block_and_pool if ends_stage else _block, **made)
            channels = features
        hidden, flat = scale_channels(4096, width), POOLED**2 * channels
        dense1 = Dense(flat, hidden, dropout, split="out", layers=layers)
        self.add_piece(_flatten_and_dense, dense1=dense1)
        dense2 = Dense(hidden, hidden, 0.0, split="in", layers=layers)
        self.add_piece(Dense.__call__, dense2=dense2)
        # The head applies the dropout of the second dense layer.
        head = Head(hidden, num_outputs, dropout, layers=layers)
        self.add_piece(Head.__call__, head=head)

    @classmethod
    def block_numbers(cls) -> Iterator[tuple[int, int]]:
        """Yield (stage, index in the stage) for each convolution, counted from 1."""
        for stage, depth in enumerate(cls.depths, 1):
            for index in range(1, depth + 1):
                yield stage, index


def _block(*layers_and_input: Any) -> jax.Array:
    *layers, x, _ = layers_and_input
    for layer in layers:
        x = layer(x)
    return nnx.relu(x)


def _block_and_pool(*layers_and_input: Any) -> jax.Array:
    return max_pool(_block(*layers_and_input))


def _flatten_and_dense(dense: Dense, x: jax.Array, rngs: nnx.Rngs | None) -> jax.Array:
    return dense(flatten(adaptive_average_pool(x, POOLED)), rngs)


VGG11 = VGG.variant(depths=(1, 1, 2, 2, 2))
VGG11BN = VGG.variant(depths=(1, 1, 2, 2, 2), batch_norm=True)
VGG13 = VGG.variant(depths=(2, 2, 2, 2, 2))
VGG13BN = VGG.variant(depths=(2, 2, 2, 2, 2), batch_norm=True)
VGG16 = VGG.variant(depths=(2, 2, 3, 3, 3))
VGG16BN = VGG.variant(depths=(2, 2, 3, 3, 3), batch_norm=True)
VGG19 = VGG.variant(depths=(2, 2, 4, 4, 4))
VGG19BN = VGG.variant(depths=(2, 2, 4, 4, 4), batch_norm=True)
