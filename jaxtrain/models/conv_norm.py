"""A convolution, batch norm and ReLU: what Inception networks are made of."""

from typing import Any

import jax
from flax import nnx

from jaxtrain.models.layers import Layers, Split


class ConvNorm(nnx.Module):
    """A convolution without bias, batch norm and ReLU."""

    def __init__(
        self,
        in_channels: int,
        channels: int,
        size: int | tuple[int, int],
        *,
        layers: Layers,
        split: Split | None = None,
        **options: Any,
    ):
        self.conv = layers.conv(
            in_channels, channels, size, bias=False, split=split, **options
        )
        self.norm = layers.batch_norm(channels, split=split == "out")

    def __call__(self, x: jax.Array, rngs: nnx.Rngs | None = None) -> jax.Array:
        return nnx.relu(self.norm(self.conv(x)))
