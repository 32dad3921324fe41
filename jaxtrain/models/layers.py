"""The pieces that models are made of: all layers of a model share one precision."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import jax
import jax.numpy as jnp
import jmp
from flax import nnx
from flax.typing import Initializer

# Keeps the variance of the activations from layer to layer: the default of Flax.
lecun_normal = nnx.initializers.lecun_normal()
T = TypeVar("T", bound=tuple)


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
    """Drops features at random and maps the rest to logits in the output dtype."""

    def __init__(
        self, in_features: int, num_classes: int, dropout: float, *, layers: "Layers"
    ):
        # Holds no random state: the key comes with each call, so that it can be a
        # function of the step.
        self.dropout = nnx.Dropout(dropout)
        self.linear = layers.linear(in_features, num_classes)
        self.dtype = layers.policy.output_dtype

    def __call__(self, x: jax.Array, *, rngs: nnx.Rngs | None = None) -> jax.Array:
        return self.linear(self.dropout(x, rngs=rngs)).astype(self.dtype)


class BatchNorm(nnx.BatchNorm):
    """Batch norm over groups of examples ("ghost" batch norm, arXiv:1705.08741).

    In training each of `groups` consecutive parts of the batch is normalised by its own
    mean and variance, in float32, and has its own running statistics, (groups,
    channels); their means over the groups count in evaluation. As long as no group is
    split over devices, these exchange nothing. One group is ordinary batch norm, with
    statistics of shape (channels,).
    """

    def __init__(self, channels: int, *, groups: int, **options: Any):
        super().__init__(channels, **options)
        if groups > 1:
            self.mean = nnx.BatchStat(jnp.zeros((groups, channels), jnp.float32))
            self.var = nnx.BatchStat(jnp.ones((groups, channels), jnp.float32))

    def __call__(self, x: Any) -> jax.Array:  # pyright: ignore
        mean, var = self.mean[...], self.var[...]
        if mean.ndim == 1:
            return super().__call__(x)
        if self.use_running_average:
            return self._normalize(x, mean.mean(0), var.mean(0))
        grouped = x.reshape(len(mean), -1, *x.shape[1:])
        dims = tuple(range(1, x.ndim))
        wide = grouped.astype(jnp.float32)
        batch_mean = wide.mean(dims)
        # Cheaper than from the differences: both sums in one pass over the batch.
        batch_var = jnp.maximum(jnp.square(wide).mean(dims) - batch_mean**2, 0)
        rate = 1 - self.momentum
        self.mean[...] = mean + rate * (batch_mean - mean)
        self.var[...] = var + rate * (batch_var - var)
        each = (len(mean), *(1,) * len(dims), -1)
        normalized = self._normalize(
            grouped, batch_mean.reshape(each), batch_var.reshape(each)
        )
        return normalized.reshape(x.shape)

    def _normalize(self, x: jax.Array, mean: jax.Array, var: jax.Array) -> jax.Array:
        assert self.scale is not None and self.bias is not None
        factor = jax.lax.rsqrt(var + self.epsilon) * self.scale[...]
        y = (x.astype(jnp.float32) - mean) * factor + self.bias[...]
        return y.astype(self.dtype)


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
        """Make a batch norm (Ioffe and Szegedy 2015) that starts at `scale`."""
        return BatchNorm(
            channels,
            groups=self.norm_groups,
            momentum=0.9,
            epsilon=1e-5,
            scale_init=nnx.initializers.constant(scale),
            dtype=self.policy.compute_dtype,
            param_dtype=self.policy.param_dtype,
            promote_dtype=_keep_dtypes,
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


def _keep_dtypes(arrays: T, /, **kwargs: Any) -> T:
    # nnx.BatchNorm would round the running statistics to the compute dtype before it
    # evaluates with them: in float16 a variance above 65504 turns into infinity. Left
    # alone, it works in float32 and casts its result, which XLA fuses all the same.
    return arrays
