"""Modules of Flax, as its documentation and its examples write them."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax.numpy as jnp
from flax import linen as nn, nnx


class CNN(nnx.Module):
    """The CNN of the NNX tutorial on MNIST, of fewer channels."""

    def __init__(self, num_classes: int = 10, *, rngs: nnx.Rngs):
        self.conv1 = nnx.Conv(1, 8, kernel_size=(3, 3), rngs=rngs)
        self.batch_norm1 = nnx.BatchNorm(8, rngs=rngs)
        self.dropout1 = nnx.Dropout(rate=0.025, rngs=rngs)
        self.conv2 = nnx.Conv(8, 16, kernel_size=(3, 3), rngs=rngs)
        self.batch_norm2 = nnx.BatchNorm(16, rngs=rngs)
        self.avg_pool = partial(nnx.avg_pool, window_shape=(2, 2), strides=(2, 2))
        self.linear1 = nnx.Linear(2 * 2 * 16, 64, rngs=rngs)
        self.dropout2 = nnx.Dropout(rate=0.25, rngs=rngs)
        self.linear2 = nnx.Linear(64, num_classes, rngs=rngs)

    def __call__(self, x):
        x = self.avg_pool(nnx.relu(self.batch_norm1(self.dropout1(self.conv1(x)))))
        x = self.avg_pool(nnx.relu(self.batch_norm2(self.conv2(x))))
        x = x.reshape(x.shape[0], -1)  # flatten
        x = nnx.relu(self.dropout2(self.linear1(x)))
        return self.linear2(x)


class ResNetBlock(nn.Module):
    """A block of the ResNet of Flax's examples."""

    filters: int
    conv: Any
    norm: Any
    act: Callable
    strides: tuple[int, int] = (1, 1)

    @nn.compact
    def __call__(self, x):
        residual = x
        y = self.conv(self.filters, (3, 3), self.strides)(x)
        y = self.norm()(y)
        y = self.act(y)
        y = self.conv(self.filters, (3, 3))(y)
        y = self.norm(scale_init=nn.initializers.zeros_init())(y)

        if residual.shape != y.shape:
            residual = self.conv(self.filters, (1, 1), self.strides, name="conv_proj")(
                residual
            )
            residual = self.norm(name="norm_proj")(residual)

        return self.act(residual + y)


class ResNet(nn.Module):
    """The ResNet of Flax's examples, with dropout before the last layer."""

    num_classes: int
    stage_sizes: tuple[int, ...] = (1, 1)
    num_filters: int = 8
    dropout: float = 0.1
    dtype: Any = jnp.float32
    param_dtype: Any = jnp.float32
    act: Callable = nn.relu

    @nn.compact
    def __call__(self, x, train: bool = True):
        dtypes = {"dtype": self.dtype, "param_dtype": self.param_dtype}
        conv = partial(nn.Conv, use_bias=False, **dtypes)
        norm = partial(
            nn.BatchNorm,
            use_running_average=not train,
            momentum=0.9,
            epsilon=1e-5,
            **dtypes,
        )
        x = conv(self.num_filters, (3, 3), name="conv_init")(x)
        x = nn.relu(norm(name="bn_init")(x))
        for i, block_size in enumerate(self.stage_sizes):
            for j in range(block_size):
                strides = (2, 2) if i > 0 and j == 0 else (1, 1)
                x = ResNetBlock(
                    self.num_filters * 2**i,
                    strides=strides,
                    conv=conv,
                    norm=norm,
                    act=self.act,
                )(x)
        x = jnp.mean(x, axis=(1, 2))
        x = nn.Dropout(self.dropout, deterministic=not train)(x)
        x = nn.Dense(self.num_classes, **dtypes)(x)
        return jnp.asarray(x, self.dtype)
