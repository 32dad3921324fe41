"""The layers that models are made of: all of a model share one precision."""

from dataclasses import dataclass
from typing import Any, Literal

import jax
import jmp
from flax import nnx
from flax.typing import Initializer

from jaxtrain.dtypes import wide
from jaxtrain.models.batch_norm import BatchNorm
from jaxtrain.models.copied import Copied
from jaxtrain.models.pools import Padding, pair, sides

# Keeps the variance of the activations from layer to layer: the default of Flax.
lecun_normal = nnx.initializers.lecun_normal()

# How the `model` axis splits a layer over devices: each computes some of its output
# channels, or takes some of its input channels, and all add up what they get.
#
# Layers take turns: "out", then "in" with the same channels; one reduction of
# activations for both (Megatron-LM, arXiv:1909.08053). What lies between, such as a
# batch norm, is split as the channels are.
Split = Literal["out", "in"]


@dataclass(frozen=True, kw_only=True)
class Layers:
    """Makes layers that share a precision policy and a source of initial weights."""

    policy: jmp.Policy
    rngs: nnx.Rngs
    # Groups that a training batch is split into for batch norm.
    norm_groups: int = 1
    # Added to the variance in batch and layer norms; of layer norms 1e-6 is usual.
    norm_epsilon: float = 1e-5
    # What a step keeps of the running statistics; PyTorch's momentum is 1 - this.
    norm_momentum: float = 0.9
    # Whether convolutions that say nothing else pad as TensorFlow's ("SAME").
    same_padding: bool = False

    def conv(
        self,
        in_channels: int,
        channels: int,
        size: int | tuple[int, int],
        *,
        stride: int = 1,
        padding: Padding | None = None,
        dilation: int = 1,
        groups: int = 1,
        bias: bool = True,
        init: Initializer = lecun_normal,
        split: Split | None = None,
    ) -> "Conv":
        """Make a convolution.

        Args:
          in_channels: of its input.
          channels: of its output.
          size: rows and columns of the kernel.
          stride: of the output, in the input.
          padding: None: on all sides what keeps the size of the image at stride 1, as
            in torchvision, unless `same_padding` is set. "SAME", as in TensorFlow, is
            another where the stride is 2: it pads an even image at the bottom and the
            right alone.
          dilation: distance of what neighbours in the kernel are multiplied with.
          groups: of channels that do not see each other; `in_channels`: depthwise.
          bias: whether it has one.
          init: of the kernel.
          split: how the `model` axis splits it.
        """
        assert split != "in" or groups == 1, "each group takes its own input channels"
        rows, columns = pair(size)
        if padding is None and self.same_padding:
            padding = "SAME"
        if padding is None:
            padding = (dilation * (rows - 1) // 2, dilation * (columns - 1) // 2)
        return Conv(
            in_channels,
            channels,
            (rows, columns),
            strides=stride,
            padding=sides(padding),
            kernel_dilation=dilation,
            feature_group_count=groups,
            use_bias=bias,
            kernel_init=init,
            **_split_metadata(split),
            dtype=self.policy.compute_dtype,
            param_dtype=self.policy.param_dtype,
            rngs=self.rngs,
        )

    def linear(
        self,
        in_features: int,
        features: int,
        *,
        init: Initializer = lecun_normal,
        split: Split | None = None,
    ) -> "Linear":
        """Make a dense layer; `init` is of its kernel."""
        return Linear(
            in_features,
            features,
            kernel_init=init,
            **_split_metadata(split),
            dtype=self.policy.compute_dtype,
            param_dtype=self.policy.param_dtype,
            rngs=self.rngs,
        )

    def batch_norm(
        self,
        channels: int,
        *,
        scale: float = 1.0,
        momentum: float | None = None,
        epsilon: float | None = None,
        split: bool = False,
    ) -> BatchNorm:
        """Make a batch norm.

        Args:
          channels: Number of input channels.
          scale: Initial value of the scale.
          momentum: Decay of the running statistics. Defaults to `norm_momentum`.
          epsilon: Addend of the variance. Defaults to `norm_epsilon`.
          split: Whether the `model` axis has split the channels.
        """
        return BatchNorm(
            channels,
            split_dim=-1 if split else None,
            groups=self.norm_groups,
            momentum=self.norm_momentum if momentum is None else momentum,
            epsilon=self.norm_epsilon if epsilon is None else epsilon,
            scale_init=nnx.initializers.constant(scale),
            dtype=self.policy.compute_dtype,
            param_dtype=self.policy.param_dtype,
            rngs=self.rngs,
        )

    def layer_norm(self, channels: int, *, epsilon: float | None = None) -> "LayerNorm":
        """Make a layer norm over the channels of each pixel.

        Args:
          channels: Number of input channels.
          epsilon: Addend of the variance. Defaults to `norm_epsilon`.
        """
        return LayerNorm(
            channels,
            dtype=self.policy.compute_dtype,
            epsilon=self.norm_epsilon if epsilon is None else epsilon,
            param_dtype=self.policy.param_dtype,
            rngs=self.rngs,
        )


class Conv(Copied, nnx.Conv):
    """Flax's convolution."""

    def __call__(self, x: jax.Array) -> jax.Array:  # pyright: ignore
        """Convolve (batch, rows, columns, channels)."""
        return self.with_own_copy(nnx.Conv.__call__, x)


class Linear(Copied, nnx.Linear):
    """Flax's dense layer."""

    def __call__(self, x: jax.Array) -> jax.Array:  # pyright: ignore
        """Map (batch, ..., features)."""
        return self.with_own_copy(nnx.Linear.__call__, x)


class LayerNorm(nnx.LayerNorm):
    """Flax's layer norm, computed in at least float32 and rounded once."""

    def __init__(self, channels: int, *, dtype: Any, **options: Any):
        # The variance is that of the differences: a pixel's mean may be large.
        super().__init__(
            channels, dtype=wide(dtype), use_fast_variance=False, **options
        )
        self.output_dtype = dtype

    def __call__(self, x: jax.Array) -> jax.Array:  # pyright: ignore
        """Normalise (..., channels); the result has the layer's dtype."""
        return super().__call__(x).astype(self.output_dtype)


def drop_path(rate: float) -> nnx.Dropout:
    """Make stochastic depth (Huang et al. 2016, arXiv:1603.09382).

    In training it makes a residual branch (batch, rows, columns, channels) 0 for some
    of the examples, and divides it by 1 - `rate` for the others.
    """
    return nnx.Dropout(rate, broadcast_dims=(1, 2, 3))


def drop_path_rates(rate: float, num_blocks: int) -> list[float]:
    """Return the rate of each block: it rises evenly from 0 to `rate`."""
    return [rate * index / max(1, num_blocks - 1) for index in range(num_blocks)]


def _split_metadata(split: Split | None) -> dict[str, Any]:
    kernel: dict[Split | None, int] = {"out": -1, "in": -2}
    return {
        "kernel_metadata": {"split_dim": kernel.get(split)},
        "bias_metadata": {"split_dim": -1 if split == "out" else None},
    }


def split_dims(model: nnx.Module) -> dict[str, int | None]:
    """Return the dim of each array that the `model` axis splits (see `Layout`)."""
    return {
        "/".join(map(str, path)): variable.get_metadata("split_dim", None)
        for path, variable in nnx.to_flat_state(nnx.state(model))
    }


def scale_channels(channels: int, width: float) -> int:
    """Return `width` times `channels`, rounded, and at least 1."""
    return max(1, round(channels * width))
