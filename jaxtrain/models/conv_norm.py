"""A convolution, batch norm and an activation, as one module."""

from typing import Any

import jax
from flax import nnx

from jaxtrain.models.activations import Activation
from jaxtrain.models.layers import Layers, Split


class ConvNorm(nnx.Module):
    """A convolution without a bias, a batch norm, and an activation, if any."""

    def __init__(
        self,
        in_channels: int,
        channels: int,
        size: int | tuple[int, int],
        *,
        layers: Layers,
        activation: Activation | None = nnx.relu,
        split: Split | None = None,
        **options: Any,
    ):
        """Make the layers.

        Args:
          in_channels: Number of input channels.
          channels: Number of output channels.
          size: Rows and columns of the kernel.
          layers: Factory of the layers.
          activation: Activation of the result; None applies none.
          split: How the `model` axis splits the convolution.
          **options: Options of the convolution (see `Layers.conv`).
        """
        self.conv = layers.conv(
            in_channels, channels, size, bias=False, split=split, **options
        )
        self.norm = layers.batch_norm(channels, split=split == "out")
        self.activation = activation

    def __call__(self, x: jax.Array, rngs: nnx.Rngs | None = None) -> jax.Array:
        x = self.conv(x)
        if self.activation is nnx.relu:
            return self.norm(x, relu=True)
        x = self.norm(x)
        return x if self.activation is None else self.activation(x)
