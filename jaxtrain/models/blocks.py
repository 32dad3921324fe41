"""Blocks of several architectures: ConvNorm, and squeeze-and-excitation."""

from typing import Any

import jax
from flax import nnx

from jaxtrain.models.activations import Activation, silu
from jaxtrain.models.layers import Layers, Split


class ConvNorm(nnx.Module):
    """A convolution (without bias), a batch norm, and an optional activation."""

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
        """Create the layers; `options` are passed to `Layers.conv`."""
        self.conv = layers.conv(
            in_channels, channels, size, bias=False, split=split, **options
        )
        self.norm = layers.batch_norm(channels, split=split == "out")
        self.activation = activation

    def __call__(self, x: jax.Array, rngs: nnx.Rngs | None = None) -> jax.Array:
        x = self.conv(x)
        if self.activation in (nnx.relu, silu):
            return self.norm(x, activation=self.activation)
        x = self.norm(x)
        return x if self.activation is None else self.activation(x)


class SqueezeExcite(nnx.Module):
    """Squeeze-and-excitation (Hu et al. 2018, arXiv:1709.01507).

    Each channel is multiplied by a gate, which is computed from the means of all
    channels.
    """

    def __init__(
        self,
        channels: int,
        squeezed: int,
        *,
        layers: Layers,
        activation: Activation = nnx.relu,
        gate: Activation = nnx.sigmoid,
        split: bool = False,
    ):
        """Create the layers.

        Args:
          channels: Number of input and output channels.
          squeezed: Number of hidden features, after the squeeze.
          gate: Activation function of the gates, with values in 0..1.
          split: Whether the `model` axis shards the channels.
        """
        self.squeeze = layers.linear(channels, squeezed, split="in" if split else None)
        self.excite = layers.linear(squeezed, channels, split="out" if split else None)
        self.activation = activation
        self.gate = gate

    def __call__(self, x: jax.Array) -> jax.Array:
        """Multiply the channels of `x`, (B, H, W, C), by their gates."""
        means = x.mean((1, 2), keepdims=True)
        return x * self.gate(self.excite(self.activation(self.squeeze(means))))
