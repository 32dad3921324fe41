"""ConvNeXt (Liu et al. 2022, arXiv:2201.03545), with the defaults of the paper."""

import dataclasses
from typing import ClassVar, Literal

import jax
import jax.numpy as jnp
from flax import nnx

from jaxtrain.config.models import ConvNeXtConfig
from jaxtrain.models.activations import gelu
from jaxtrain.models.base import Model
from jaxtrain.models.copied import Copied
from jaxtrain.models.head import Head
from jaxtrain.models.layers import (
    LayerNorm,
    Layers,
    drop_path,
    drop_path_rates,
    scale_channels,
)

# Initializer of all kernels, as in the authors' code, which also truncates at 100
# standard deviations, without effect.
normal_init = nnx.initializers.normal(0.02)


class LayerScale(Copied):
    """Multiplication by a learned factor per channel (arXiv:2103.17239)."""

    def __init__(self, channels: int, *, layers: Layers):
        start = jnp.full(channels, 1e-6, layers.policy.param_dtype)
        self.scale = nnx.Param(start, split_dim=None)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.with_own_copy(_multiply, x)


def _multiply(layer: LayerScale, x: jax.Array) -> jax.Array:
    return x * layer.scale[...].astype(x.dtype)


class ConvNeXtBlock(nnx.Module):
    """A residual block: a depthwise 7x7 convolution and two dense layers.

    The hidden channels of the dense layers are split over the `model` axis. So are the
    channels of the depthwise convolution, because otherwise XLA incorrectly doubles its
    gradient on a mesh with the axes `fsdp` and `model`.
    """

    def __init__(self, channels: int, *, drop_path_rate: float, layers: Layers):
        self.depthwise = layers.conv(
            channels, channels, 7, groups=channels, split="out"
        )
        self.norm = layers.layer_norm(channels)
        self.dense1 = layers.linear(channels, 4 * channels, split="out")
        self.dense2 = layers.linear(4 * channels, channels, split="in")
        self.layer_scale = LayerScale(channels, layers=layers)
        self.drop_path = drop_path(drop_path_rate)

    def __call__(self, x: jax.Array, rngs: nnx.Rngs | None = None) -> jax.Array:
        y = self.norm(self.depthwise(x))
        y = self.layer_scale(self.dense2(gelu(self.dense1(y))))
        return x + self.drop_path(y, rngs=rngs)


class Downsample(nnx.Module):
    """Downsampling by a layer norm and a 2x2 convolution with stride 2."""

    def __init__(self, in_channels: int, channels: int, *, layers: Layers):
        self.norm = layers.layer_norm(in_channels)
        self.conv = layers.conv(in_channels, channels, 2, stride=2, padding=0)

    def __call__(self, x: jax.Array, rngs: nnx.Rngs | None = None) -> jax.Array:
        return self.conv(self.norm(x))


class ConvNeXt(Model):
    """A patchify stem, four stages of blocks, and global average pooling."""

    Options: ClassVar = ConvNeXtConfig

    # With the stem `cifar`; the stem `imagenet` requires images of 32 pixels.
    min_size = 8

    # Number of channels at width 1, and number of blocks, of each stage.
    channels: ClassVar[tuple[int, ...]] = (96, 192, 384, 768)
    depths: ClassVar[tuple[int, ...]]
    # Default drop rate of stochastic depth in the last block.
    base_drop_path: ClassVar[float]

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        num_outputs: int,
        *,
        layers: Layers,
        width: float = 1.0,
        dropout: float = 0.0,
        drop_path: float | None = None,
        stem: Literal["imagenet", "cifar"] = "imagenet",
        norm_epsilon: float = 1e-6,
    ):
        layers = dataclasses.replace(
            layers, norm_epsilon=norm_epsilon, init=normal_init
        )
        size, stride, padding = (4, 4, 0) if stem == "imagenet" else (3, 1, 1)
        self.stride = self.min_size = stride * 2 ** (len(self.depths) - 1)
        features = scale_channels(self.channels[0], width)
        stem_conv = layers.conv(
            image_shape[2], features, size, stride=stride, padding=padding
        )
        stem_norm = layers.layer_norm(features)
        self.add_piece(_stem, stem_conv=stem_conv, stem_norm=stem_norm)
        rate = self.base_drop_path if drop_path is None else drop_path
        rates = iter(drop_path_rates(rate, sum(self.depths)))
        for stage, depth in enumerate(self.depths):
            channels = scale_channels(self.channels[stage], width)
            if stage > 0:
                down = Downsample(features, channels, layers=layers)
                name = f"stage{stage + 1}_downsample"
                self.add_piece(Downsample.__call__, **{name: down})
            for index in range(depth):
                block = ConvNeXtBlock(
                    channels, drop_path_rate=next(rates), layers=layers
                )
                name = f"stage{stage + 1}_block{index + 1}"
                self.add_piece(ConvNeXtBlock.__call__, **{name: block})
            features = channels
        head = Head(features, num_outputs, dropout, layers=layers)
        self.add_piece(_head, head_norm=layers.layer_norm(features), head=head)


def _stem(
    conv: nnx.Conv, norm: LayerNorm, images: jax.Array, rngs: nnx.Rngs | None
) -> jax.Array:
    return norm(conv(images))


def _head(
    norm: LayerNorm, head: Head, x: jax.Array, rngs: nnx.Rngs | None
) -> jax.Array:
    return head(norm(x.mean((1, 2))), rngs)


ConvNeXtTiny = ConvNeXt.variant(depths=(3, 3, 9, 3), base_drop_path=0.1)
ConvNeXtSmall = ConvNeXt.variant(depths=(3, 3, 27, 3), base_drop_path=0.4)
ConvNeXtBase = ConvNeXt.variant(
    channels=(128, 256, 512, 1024), depths=(3, 3, 27, 3), base_drop_path=0.5
)
