"""Squeeze-and-excitation (Hu et al. 2018, arXiv:1709.01507)."""

import jax
from flax import nnx
from flax.typing import Initializer

from jaxtrain.models.activations import Activation
from jaxtrain.models.layers import Layers, lecun_normal


class SqueezeExcite(nnx.Module):
    """Multiplies each channel by a gate, which the means of all channels open."""

    def __init__(
        self,
        channels: int,
        squeezed: int,
        *,
        layers: Layers,
        activation: Activation = nnx.relu,
        gate: Activation = nnx.sigmoid,
        init: Initializer = lecun_normal,
        split: bool = False,
    ):
        """Make the layers.

        Args:
          channels: Number of input channels.
          squeezed: Number of features that the gates are computed from.
          layers: Factory of the layers.
          activation: Activation of these features.
          gate: Activation that maps to 0..1.
          init: Initializer of the kernels.
          split: Whether the `model` axis has split the channels.
        """
        self.squeeze = layers.linear(
            channels, squeezed, init=init, split="in" if split else None
        )
        self.excite = layers.linear(
            squeezed, channels, init=init, split="out" if split else None
        )
        self.activation = activation
        self.gate = gate

    def __call__(self, x: jax.Array) -> jax.Array:
        """Return (batch, rows, columns, channels), as `x`."""
        means = x.mean((1, 2), keepdims=True)
        return x * self.gate(self.excite(self.activation(self.squeeze(means))))
