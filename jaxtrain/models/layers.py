"""The pieces that models are made of: all layers of a model share one precision."""

from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import jax
import jmp
from flax import nnx
from flax.typing import Initializer

# Keeps the variance of the activations from layer to layer: the default of Flax.
lecun_normal = nnx.initializers.lecun_normal()
T = TypeVar("T", bound=tuple)


class Model(nnx.Module):
    """Classifies images [B, H, W, C]; `train()` and `eval()` switch its layers."""

    # Smallest height and width in pixels that leave the last layers any.
    min_size: ClassVar[int] = 1

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

    def __call__(self, images: jax.Array, *, rngs: nnx.Rngs | None = None) -> jax.Array:
        """Return logits [B, num_classes]; `rngs` is for dropout, in training."""
        raise NotImplementedError


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


@dataclass(frozen=True, kw_only=True)
class Layers:
    """Makes layers that share a precision policy and a source of initial weights."""

    policy: jmp.Policy
    rngs: nnx.Rngs

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

    def batch_norm(self, channels: int, *, scale: float = 1.0) -> nnx.BatchNorm:
        """Make a batch norm (Ioffe and Szegedy 2015) that starts at `scale`."""
        return nnx.BatchNorm(
            channels,
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
