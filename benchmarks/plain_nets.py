"""Plain Flax nets of other families, as `plain_flax.py` has ResNet-50."""

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import nnx

Activation = Callable[[jax.Array], jax.Array]
# What all layers of a net share: `dtype` and `rngs`.
Make = dict[str, Any]


class ConvNorm(nnx.Module):
    """A convolution, batch norm and an activation."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        size: int,
        activation: Activation | None,
        make: Make,
        stride: int = 1,
        groups: int = 1,
    ):
        self.conv = nnx.Conv(
            *(inputs, outputs, (size, size)),
            strides=stride,
            padding=size // 2,
            feature_group_count=groups,
            use_bias=False,
            **make,
        )
        self.norm = nnx.BatchNorm(outputs, momentum=0.9, **make)
        self.activation = activation

    def __call__(self, x: jax.Array) -> jax.Array:
        x = self.norm(self.conv(x))
        return x if self.activation is None else self.activation(x)


class SqueezeExcite(nnx.Module):
    """Multiplies channels by gates that their means decide."""

    def __init__(
        self,
        channels: int,
        features: int,
        activation: Activation,
        gate: Activation,
        make: Make,
    ):
        self.reduce = nnx.Linear(channels, features, **make)
        self.expand = nnx.Linear(features, channels, **make)
        self.activation, self.gate = activation, gate

    def __call__(self, x: jax.Array) -> jax.Array:
        y = self.activation(self.reduce(x.mean((1, 2), keepdims=True)))
        return x * self.gate(self.expand(y))


class InvertedResidual(nnx.Module):
    """A 1x1, a depthwise and a 1x1 convolution, and the shortcut."""

    def __init__(
        self,
        inputs: int,
        hidden: int,
        outputs: int,
        size: int,
        stride: int,
        activation: Activation,
        squeeze: tuple[int, Activation, Activation] | None,
        make: Make,
    ):
        layers: list[Any] = []
        if hidden != inputs:
            layers.append(ConvNorm(inputs, hidden, 1, activation, make))
        layers.append(
            ConvNorm(hidden, hidden, size, activation, make, stride, groups=hidden)
        )
        if squeeze is not None:
            layers.append(SqueezeExcite(hidden, *squeeze, make))
        layers.append(ConvNorm(hidden, outputs, 1, None, make))
        self.layers = nnx.List(layers)
        self.shortcut = stride == 1 and inputs == outputs

    def __call__(self, x: jax.Array) -> jax.Array:
        y = x
        for layer in self.layers:
            y = layer(y)
        return x + y if self.shortcut else y


class EfficientNetB0(nnx.Module):
    """Logits, float32, of images (batch, 224, 224, 3)."""

    # Outputs, expansion, blocks, stride, kernel.
    rows: ClassVar = (
        (16, 1, 1, 1, 3),
        (24, 6, 2, 2, 3),
        (40, 6, 2, 2, 5),
        (80, 6, 3, 2, 3),
        (112, 6, 3, 1, 5),
        (192, 6, 4, 2, 5),
        (320, 6, 1, 1, 3),
    )

    def __init__(self, dtype: Any, rngs: nnx.Rngs):
        make = Make(dtype=dtype, rngs=rngs)
        self.stem, inputs = ConvNorm(3, 32, 3, nnx.silu, make, stride=2), 32
        blocks: list[Any] = []
        for outputs, expansion, number, stride, size in self.rows:
            for index in range(number):
                squeeze = inputs // 4, nnx.silu, nnx.sigmoid
                hidden, step = expansion * inputs, stride if index == 0 else 1
                sizes = inputs, hidden, outputs, size, step
                blocks.append(InvertedResidual(*sizes, nnx.silu, squeeze, make))
                inputs = outputs
        self.blocks = nnx.List(blocks)
        self.last = ConvNorm(inputs, 1280, 1, nnx.silu, make)
        self.head = nnx.Linear(1280, 1000, **make)

    def __call__(self, x: jax.Array) -> jax.Array:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(self.last(x).mean((1, 2))).astype(jnp.float32)


class MobileNetV3Large(nnx.Module):
    """Logits, float32, of images (batch, 224, 224, 3)."""

    # Kernel, hidden, outputs, features of the squeeze (0: none), h-swish, stride.
    rows: ClassVar = (
        (3, 16, 16, 0, False, 1),
        (3, 64, 24, 0, False, 2),
        (3, 72, 24, 0, False, 1),
        (5, 72, 40, 24, False, 2),
        (5, 120, 40, 32, False, 1),
        (5, 120, 40, 32, False, 1),
        (3, 240, 80, 0, True, 2),
        (3, 200, 80, 0, True, 1),
        (3, 184, 80, 0, True, 1),
        (3, 184, 80, 0, True, 1),
        (3, 480, 112, 120, True, 1),
        (3, 672, 112, 168, True, 1),
        (5, 672, 160, 168, True, 2),
        (5, 960, 160, 240, True, 1),
        (5, 960, 160, 240, True, 1),
    )

    def __init__(self, dtype: Any, rngs: nnx.Rngs):
        make = Make(dtype=dtype, rngs=rngs)
        self.stem, inputs = ConvNorm(3, 16, 3, nnx.hard_swish, make, stride=2), 16
        blocks: list[Any] = []
        for size, hidden, outputs, features, swish, stride in self.rows:
            squeeze = (features, nnx.relu, nnx.hard_sigmoid) if features else None
            activation = nnx.hard_swish if swish else nnx.relu
            sizes = inputs, hidden, outputs, size, stride
            blocks.append(InvertedResidual(*sizes, activation, squeeze, make))
            inputs = outputs
        self.blocks = nnx.List(blocks)
        self.last = ConvNorm(inputs, 960, 1, nnx.hard_swish, make)
        self.dense = nnx.Linear(960, 1280, **make)
        self.head = nnx.Linear(1280, 1000, **make)

    def __call__(self, x: jax.Array) -> jax.Array:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        x = nnx.hard_swish(self.dense(self.last(x).mean((1, 2))))
        return self.head(x).astype(jnp.float32)


class ConvNeXtBlock(nnx.Module):
    """A depthwise 7x7 convolution, a norm, two dense layers, and the shortcut."""

    def __init__(self, channels: int, make: Make):
        self.depthwise = nnx.Conv(
            *(channels, channels, (7, 7)),
            padding=3,
            feature_group_count=channels,
            **make,
        )
        self.norm = nnx.LayerNorm(channels, epsilon=1e-6, **make)
        self.dense1 = nnx.Linear(channels, 4 * channels, **make)
        self.dense2 = nnx.Linear(4 * channels, channels, **make)
        self.scale = nnx.Param(jnp.full(channels, 1e-6))

    def __call__(self, x: jax.Array) -> jax.Array:
        y = self.dense1(self.norm(self.depthwise(x)))
        y = self.dense2(nnx.gelu(y, approximate=False))
        return x + y * self.scale[...].astype(y.dtype)


class ConvNeXtTiny(nnx.Module):
    """Logits, float32, of images (batch, 224, 224, 3)."""

    depths: ClassVar = (3, 3, 9, 3)
    channels: ClassVar = (96, 192, 384, 768)

    def __init__(self, dtype: Any, rngs: nnx.Rngs):
        make = Make(dtype=dtype, rngs=rngs)
        norm = partial(nnx.LayerNorm, epsilon=1e-6, **make)
        patch = partial(nnx.Conv, padding="VALID", **make)
        layers: list[Any] = []
        inputs = 3
        for stage, channels in enumerate(self.channels):
            if stage == 0:
                layers += [patch(inputs, channels, (4, 4), strides=4), norm(channels)]
            else:
                down = patch(inputs, channels, (2, 2), strides=2)
                layers += [norm(inputs), down]
            layers += [ConvNeXtBlock(channels, make) for _ in range(self.depths[stage])]
            inputs = channels
        self.layers = nnx.List(layers)
        self.norm, self.head = norm(inputs), nnx.Linear(inputs, 1000, **make)

    def __call__(self, x: jax.Array) -> jax.Array:
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x.mean((1, 2)))).astype(jnp.float32)
