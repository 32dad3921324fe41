"""Tiny models: one with all that a recomputation could get wrong, and a deep one."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from jaxtrain.models.auxiliary import AuxiliaryHead
from jaxtrain.models.base import Model
from jaxtrain.models.head import Head, mean_head
from jaxtrain.models.layers import Layers, drop_path
from tests.helpers.auxiliary import MeanHead

# Convolutions of `Deep`.
DEPTH = 12


class Varied(Model):
    """Batch norms, dropout, stochastic depth, a tuple and an auxiliary head."""

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        num_outputs: int,
        *,
        layers: Layers,
        width: float = 1.0,
    ):
        channels = round(4 * width)
        self.add_piece(
            _stem,
            stem=layers.conv(image_shape[2], channels, 3, bias=False, split="out"),
            stem_norm=layers.batch_norm(channels, split=True),
        )
        self.add_piece(
            _fork,
            fork=layers.conv(channels, channels, 3, bias=False, split="in"),
            fork_norm=layers.batch_norm(channels),
            drop=nnx.Dropout(0.3),
        )
        self.add_piece(
            _merge,
            merge=layers.conv(channels, channels, 1, bias=False),
            merge_norm=layers.batch_norm(channels),
            drop_path=drop_path(0.3),
        )
        aux = MeanHead(channels, num_outputs, 0.3, 0.3, layers=layers)
        self.add_piece(AuxiliaryHead.__call__, aux=aux)
        self.add_piece(mean_head, head=Head(channels, num_outputs, 0.3, layers=layers))


class Deep(Model):
    """Convolutions, each a piece."""

    def __init__(
        self, image_shape: tuple[int, int, int], num_outputs: int, *, layers: Layers
    ):
        channels = image_shape[2]
        for number in range(DEPTH):
            conv = layers.conv(channels, 8, 3)
            self.add_piece(_block, **{f"conv{number}": conv})
            channels = 8
        self.add_piece(mean_head, head=Head(8, num_outputs, 0.0, layers=layers))


def _block(conv: Any, x: jax.Array, rngs: Any) -> jax.Array:
    # What two tanh store beside the convolution's input.
    return jnp.tanh(jnp.tanh(conv(x)))


def _stem(conv: Any, norm: Any, x: jax.Array, rngs: Any) -> jax.Array:
    return jnp.tanh(norm(conv(x)))


def _fork(conv: Any, norm: Any, drop: Any, x: jax.Array, rngs: Any) -> Any:
    return x, drop(nnx.relu(norm(conv(x))), rngs=rngs)


def _merge(conv: Any, norm: Any, drop: Any, x: Any, rngs: Any) -> jax.Array:
    shortcut, x = x
    return shortcut + drop(norm(conv(x)), rngs=rngs)
