"""The pieces that models are made of: all layers of a model share one precision."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import jmp
from flax import nnx
from flax.typing import Initializer

from jaxtrain.dtypes import wide
from jaxtrain.models.batch_norm import BatchNorm

# Keeps the variance of the activations from layer to layer: the default of Flax.
lecun_normal = nnx.initializers.lecun_normal()


@dataclass(frozen=True)
class Piece:
    """A part of a model, never split: the layers' names and what it computes."""

    names: tuple[str, ...]
    apply: Callable[[jax.Array], jax.Array]


class Model(nnx.Module):
    """Classifies images [B, H, W, C]; `train()` and `eval()` switch its layers."""

    # Smallest height and width in pixels that leave the last layers any.
    min_size: ClassVar[int] = 1
    # Pixels of the image, in height and in width, that become one in the last layer of
    # convolutions.
    stride: int = 1
    # Least rows of that layer, and columns, on each device, where devices share images.
    min_share: ClassVar[int] = 1

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        num_classes: int,
        *,
        layers: "Layers",
        **options: Any,
    ):
        """Create the layers; subclasses name their options and give the defaults."""
        raise NotImplementedError

    def pieces(self, rngs: nnx.Rngs | None = None) -> Sequence[Piece]:
        """Return what images pass through in turn; `rngs` is for dropout, in training.

        Pieces look up their layers only when they are applied: a pipeline stage holds
        those of its own pieces.
        """
        raise NotImplementedError

    def __call__(
        self,
        x: jax.Array,
        *,
        rngs: nnx.Rngs | None = None,
        part: slice = slice(None),
    ) -> jax.Array:
        """Return logits [B, num_classes], or what some of the pieces make of `x`."""
        for piece in self.pieces(rngs)[part]:
            x = piece.apply(x)
        return x


class Head(nnx.Module):
    """Drops features at random and maps the rest to logits in the output dtype.

    The products are those of the compute dtype; their sums, and the bias, are kept in
    at least float32 before they are cast: bfloat16 logits of 17 are off by up to 0.06.
    """

    def __init__(
        self, in_features: int, num_classes: int, dropout: float, *, layers: "Layers"
    ):
        # Holds no random state: the key comes with each call, so that it can be a
        # function of the step.
        self.dropout = nnx.Dropout(dropout)
        self.linear = layers.linear(in_features, num_classes)
        self.dtype = layers.policy.output_dtype

    def __call__(self, x: jax.Array, *, rngs: nnx.Rngs | None = None) -> jax.Array:
        layer, x = self.linear, self.dropout(x, rngs=rngs)
        assert layer.bias is not None
        x, kernel = x.astype(layer.dtype), layer.kernel[...].astype(layer.dtype)
        logits = jnp.dot(x, kernel, preferred_element_type=wide(layer.dtype))
        return (logits + layer.bias[...]).astype(self.dtype)


@dataclass(frozen=True, kw_only=True)
class Layers:
    """Makes layers that share a precision policy and a source of initial weights."""

    policy: jmp.Policy
    rngs: nnx.Rngs
    # Groups that a training batch is split into for batch norm.
    norm_groups: int = 1

    def conv(
        self,
        in_channels: int,
        channels: int,
        size: int,
        *,
        stride: int = 1,
        padding: int | None = None,
        bias: bool = True,
        init: Initializer = lecun_normal,
    ) -> nnx.Conv:
        """Make a convolution with square kernels; padding None: half the kernel.

        The padding is the same on all sides, as in torchvision: "SAME" pads an even
        image only at the bottom and the right when the stride is 2.
        """
        return nnx.Conv(
            in_channels,
            channels,
            (size, size),
            strides=stride,
            padding=size // 2 if padding is None else padding,
            use_bias=bias,
            kernel_init=init,
            dtype=self.policy.compute_dtype,
            param_dtype=self.policy.param_dtype,
            rngs=self.rngs,
        )

    def linear(self, in_features: int, features: int) -> nnx.Linear:
        """Make a dense layer."""
        return nnx.Linear(
            in_features,
            features,
            dtype=self.policy.compute_dtype,
            param_dtype=self.policy.param_dtype,
            rngs=self.rngs,
        )

    def batch_norm(self, channels: int, *, scale: float = 1.0) -> BatchNorm:
        """Make a batch norm that starts at `scale`."""
        return BatchNorm(
            channels,
            groups=self.norm_groups,
            epsilon=1e-5,
            scale_init=nnx.initializers.constant(scale),
            dtype=self.policy.compute_dtype,
            param_dtype=self.policy.param_dtype,
            rngs=self.rngs,
        )


def scale_channels(channels: int, width: float) -> int:
    """Return `width` times `channels`, rounded, and at least 1."""
    return max(1, round(channels * width))


def max_pool(x: jax.Array) -> jax.Array:
    """Take the maximum of each 2x2 window; an odd last row or column is left out.

    Equals `nnx.max_pool(x, (2, 2), (2, 2))`, but that equal maxima share the gradient.
    The gradient of nnx.max_pool is a select-and-scatter: without it a whole training
    step was measured 1.7 to 2 times as fast on CPU.
    """
    batch, height, width, channels = x.shape
    height, width = height // 2, width // 2
    x = x[:, : 2 * height, : 2 * width]
    return x.reshape(batch, height, 2, width, 2, channels).max((2, 4))


def flatten(x: jax.Array) -> jax.Array:
    """Join all dims but the first."""
    return x.reshape(x.shape[0], -1)
