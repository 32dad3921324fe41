"""A tiny model with two auxiliary heads, with something random in each of them."""

import jax
import jax.numpy as jnp
from flax import nnx

from jaxtrain.models.auxiliary import AuxiliaryHead
from jaxtrain.models.base import Model
from jaxtrain.models.head import Head
from jaxtrain.models.layers import Layers


class MeanHead(AuxiliaryHead):
    def __init__(
        self,
        in_features: int,
        num_outputs: int,
        dropout: float,
        weight: float,
        *,
        layers: Layers,
    ):
        super().__init__(weight)
        self.head = Head(in_features, num_outputs, dropout, layers=layers)

    def outputs(self, x: jax.Array, rngs: nnx.Rngs | None) -> jax.Array:
        return self.head(x.mean((1, 2)), rngs)


class TwoHeads(Model):
    """Two layers, an auxiliary head after each, and the last one."""

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        num_outputs: int,
        *,
        layers: Layers,
        width: float = 1.0,
        dropout: float = 0.0,
        aux_weight: float = 0.3,
    ):
        channels, features = image_shape[2], round(16 * width)
        for number in (1, 2):
            # Of each pixel: quicker to compile than a convolution.
            linear = layers.linear(channels, features)
            self.add_piece(_block, **{f"linear{number}": linear})
            channels = features
            if aux_weight:
                head = MeanHead(
                    channels, num_outputs, dropout, aux_weight, layers=layers
                )
                self.add_piece(AuxiliaryHead.__call__, **{f"aux{number}": head})
        self.add_piece(_head, head=Head(features, num_outputs, dropout, layers=layers))


def _block(linear: nnx.Linear, x: jax.Array, rngs: nnx.Rngs | None) -> jax.Array:
    return jnp.tanh(linear(x))


def _head(head: Head, x: jax.Array, rngs: nnx.Rngs | None) -> jax.Array:
    return head(x.mean((1, 2)), rngs)
