"""A plain Flax trainer of ResNet-50, as its examples write it: what ours is held to."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import nnx

# Blocks and channels of each stage.
STAGES = ((3, 64), (4, 128), (6, 256), (3, 512))


class Bottleneck(nnx.Module):
    """1x1, 3x3 and 1x1 convolutions, and the shortcut."""

    def __init__(self, inputs: int, channels: int, stride: int, dtype: Any, rngs: Any):
        outputs = 4 * channels
        conv = partial(nnx.Conv, use_bias=False, dtype=dtype, rngs=rngs)
        norm = partial(nnx.BatchNorm, momentum=0.9, dtype=dtype, rngs=rngs)
        self.conv1, self.norm1 = conv(inputs, channels, (1, 1)), norm(channels)
        self.conv2 = conv(channels, channels, (3, 3), strides=stride, padding=1)
        self.norm2 = norm(channels)
        self.conv3, self.norm3 = conv(channels, outputs, (1, 1)), norm(outputs)
        self.projects = stride != 1 or inputs != outputs
        if self.projects:
            self.project = conv(inputs, outputs, (1, 1), strides=stride)
            self.project_norm = norm(outputs)

    def __call__(self, x: jax.Array) -> jax.Array:
        y = nnx.relu(self.norm1(self.conv1(x)))
        y = nnx.relu(self.norm2(self.conv2(y)))
        y = self.norm3(self.conv3(y))
        return nnx.relu(
            y + (self.project_norm(self.project(x)) if self.projects else x)
        )


class ResNet50(nnx.Module):
    """Logits, float32, of images (batch, 224, 224, 3).

    Args:
      stages: Blocks and channels of each; the stem has the channels of the first.
    """

    def __init__(
        self, dtype: Any, rngs: nnx.Rngs, stages: Sequence[tuple[int, int]] = STAGES
    ):
        inputs = stages[0][1]
        conv = partial(nnx.Conv, use_bias=False, dtype=dtype, rngs=rngs)
        self.stem = conv(3, inputs, (7, 7), strides=2, padding=3)
        self.norm = nnx.BatchNorm(inputs, momentum=0.9, dtype=dtype, rngs=rngs)
        blocks = []
        for stage, (number, width) in enumerate(stages):
            for index in range(number):
                stride = 2 if stage and index == 0 else 1
                blocks.append(Bottleneck(inputs, width, stride, dtype, rngs))
                inputs = 4 * width
        self.blocks = nnx.List(blocks)
        self.head = nnx.Linear(inputs, 1000, dtype=dtype, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        x = nnx.relu(self.norm(self.stem(x)))
        padding: Any = ((1, 1), (1, 1))  # Flax's annotation knows names alone.
        x = nnx.max_pool(x, (3, 3), (2, 2), padding)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean((1, 2))).astype(jnp.float32)


def make_step(dtype: Any, net: Any = ResNet50) -> tuple[Any, Any]:
    """Return `(state, images, labels) -> (state, loss)`, and the abstract state.

    Args:
      dtype: Dtype that the net computes in.
      net: Class of the net, made of `dtype` and `rngs`.
    """
    tx = optax.chain(optax.add_decayed_weights(1e-4), optax.sgd(0.1, 0.9))
    abstract = nnx.eval_shape(lambda: net(dtype, nnx.Rngs(0)))
    graphdef, params, rest = nnx.split(abstract, nnx.Param, ...)
    state = (params, rest, jax.eval_shape(tx.init, params))

    def step(state: Any, images: jax.Array, labels: jax.Array) -> tuple[Any, Any]:
        params, rest, opt_state = state
        x = ((images.astype(jnp.float32) / 255 - 0.45) / 0.225).astype(dtype)

        def loss_fn(params: Any) -> tuple[jax.Array, Any]:
            model = nnx.merge(graphdef, params, rest, copy=True)
            model.train()
            losses = optax.softmax_cross_entropy_with_integer_labels(model(x), labels)
            return losses.mean(), nnx.split(model, nnx.Param, ...)[2]

        (loss, rest), grads = jax.value_and_grad(loss_fn, has_aux=True)(params)
        updates, opt_state = tx.update(grads, opt_state, params)
        params = optax.apply_updates(params, updates)
        return (params, rest, opt_state), loss

    return step, state
