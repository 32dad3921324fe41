"""Factory of layers; all layers of a model share a precision policy."""

from dataclasses import dataclass
from typing import Any, Literal

import jax
import jmp
from flax import nnx
from flax.typing import Initializer

from jaxtrain.dtypes import wide
from jaxtrain.models.batch_norm import BatchNorm
from jaxtrain.models.copied import Copied
from jaxtrain.models.named import NamedLayer, in_own_scope
from jaxtrain.models.pools import Padding, pair, sides
from jaxtrain.models.ranged import Ranged

# Flax's default initializer, which preserves the variance of activations.
lecun_normal = nnx.initializers.lecun_normal()
# Initializers for ReLU (He et al. 2015, arXiv:1502.01852): a normal distribution with
# variance 2 / fan, not truncated, like PyTorch's `kaiming_normal_` and unlike Flax's
# `he_normal`. The fan is the number of kernel pixels times output channels, to preserve
# the variance of gradients (equation 14), or times the input channels of a group, to
# preserve the variance of activations (equation 10).
he_fan_out = nnx.initializers.variance_scaling(2.0, "fan_out", "normal")
he_fan_in = nnx.initializers.variance_scaling(2.0, "fan_in", "normal")

# Split of a layer over the `model` axis. "out": each device computes a shard of the
# output channels. "in": each device uses a shard of the input channels, and the outputs
# are all-reduced.
#
# An "out" layer is followed by an "in" layer that is split along the same channels, so
# that the pair needs a single all-reduce (Megatron-LM, arXiv:1909.08053). Layers in
# between, such as a batch norm, are split along the same channels.
Split = Literal["out", "in"]


@dataclass(frozen=True, kw_only=True)
class Layers:
    """Factory of layers that share a precision policy and a PRNG for initialization."""

    policy: jmp.Policy
    rngs: nnx.Rngs
    # Number of batch-norm groups of a training batch.
    norm_groups: int = 1
    # Epsilon of batch and layer norms; 1e-6 is usual for layer norms.
    norm_epsilon: float = 1e-5
    # Defaults of layers: initializer of kernels, whether convolutions have a bias, and
    # whether convolutions pad as in TensorFlow ("SAME").
    init: Initializer = lecun_normal
    conv_bias: bool = True
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
        bias: bool | None = None,
        init: Initializer | None = None,
        split: Split | None = None,
    ) -> "Conv":
        """Make a convolution.

        Args:
          size: Rows and columns of the kernel.
          stride: Stride of rows and columns.
          padding: "SAME" pads as in TensorFlow: at stride 2, an image of even size is
            padded only at the bottom and right. None means "SAME" if `same_padding` is
            set; otherwise all sides are padded equally, as in torchvision, and stride 1
            preserves the image size.
          dilation: Dilation of the kernel.
          groups: Number of channel groups; `in_channels` for a depthwise convolution.
          bias: Whether the convolution has a bias. Defaults to `conv_bias`.
          init: Initializer of the kernel. Defaults to `Layers.init`.
          split: Split of the layer over the `model` axis.
        """
        assert split != "in" or groups == 1, (
            "a grouped convolution has no split of its input channels"
        )
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
            use_bias=self.conv_bias if bias is None else bias,
            **self._kernel(init, split),
            **self._common,
        )

    def linear(
        self,
        in_features: int,
        features: int,
        *,
        init: Initializer | None = None,
        split: Split | None = None,
    ) -> "Linear":
        """Make a dense layer; the kernel initializer defaults to `Layers.init`."""
        return Linear(
            in_features, features, **self._kernel(init, split), **self._common
        )

    def batch_norm(
        self,
        channels: int,
        *,
        scale: float = 1.0,
        momentum: float = 0.9,
        epsilon: float | None = None,
        split: bool = False,
    ) -> BatchNorm:
        """Make a batch norm.

        Args:
          scale: Initial value of the scale.
          momentum: Decay of the running statistics; 1 - PyTorch's momentum.
          epsilon: Constant added to the variance. Defaults to `norm_epsilon`.
          split: Whether the channels are split over the `model` axis.
        """
        return BatchNorm(
            channels,
            split_dim=-1 if split else None,
            groups=self.norm_groups,
            momentum=momentum,
            epsilon=self.norm_epsilon if epsilon is None else epsilon,
            scale_init=nnx.initializers.constant(scale),
            **self._common,
        )

    def layer_norm(self, channels: int, *, epsilon: float | None = None) -> "LayerNorm":
        """Make a layer norm over the channels of each pixel."""
        epsilon = self.norm_epsilon if epsilon is None else epsilon
        return LayerNorm(channels, epsilon=epsilon, **self._common)

    def group_norm(
        self, channels: int, groups: int, *, epsilon: float | None = None
    ) -> "GroupNorm":
        """Make a group norm (Wu and He 2018, arXiv:1803.08494).

        Args:
          groups: Number of groups, a divisor of the number of channels.
        """
        epsilon = self.norm_epsilon if epsilon is None else epsilon
        return GroupNorm(channels, groups, epsilon=epsilon, **self._common)

    @property
    def _common(self) -> dict[str, Any]:
        return {
            "dtype": self.policy.compute_dtype,
            "param_dtype": self.policy.param_dtype,
            "rngs": self.rngs,
        }

    def _kernel(self, init: Initializer | None, split: Split | None) -> dict[str, Any]:
        dim = {"out": -1, "in": -2}[split] if split else None
        return {
            "kernel_init": init or self.init,
            "kernel_metadata": {"split_dim": dim},
            "bias_metadata": {"split_dim": -1 if split == "out" else None},
        }


class Conv(NamedLayer, Ranged, Copied, nnx.Conv):
    """Flax's convolution with a layer path, optional quantizers and device copies."""

    @in_own_scope
    def __call__(self, x: jax.Array) -> jax.Array:  # pyright: ignore
        """Convolve images (batch, rows, columns, channels)."""
        return self.quantize_output(
            self.with_own_copy(nnx.Conv.__call__, self.quantize_input(x))
        )


class Linear(NamedLayer, Ranged, Copied, nnx.Linear):
    """Flax's dense layer with a layer path, optional quantizers and device copies."""

    @in_own_scope
    def __call__(self, x: jax.Array) -> jax.Array:  # pyright: ignore
        """Apply the layer to features (batch, ..., features)."""
        return self.quantize_output(
            self.with_own_copy(nnx.Linear.__call__, self.quantize_input(x))
        )


class Widened(NamedLayer):
    """Mixin for Flax's norms: compute in at least float32, and round once."""

    def __init__(self, *sizes: int, dtype: Any, **options: Any):
        # Two-pass variance: E[x^2] - mean^2 is inaccurate if the mean over the channels
        # is much larger than the deviation.
        options |= {"dtype": wide(dtype), "use_fast_variance": False}
        super().__init__(*sizes, **options)
        self.output_dtype = dtype

    @in_own_scope
    def __call__(self, x: jax.Array) -> jax.Array:
        """Normalize (batch, ..., channels); the result has the layer's dtype."""
        return super().__call__(x).astype(self.output_dtype)  # pyright: ignore


class LayerNorm(Widened, nnx.LayerNorm):  # pyright: ignore
    """Flax's layer norm with a layer path, in at least float32."""


class GroupNorm(Widened, nnx.GroupNorm):  # pyright: ignore
    """Flax's group norm with a layer path, in at least float32."""


def drop_path(rate: float) -> nnx.Dropout:
    """Make a stochastic depth layer (Huang et al. 2016, arXiv:1603.09382).

    In training it zeroes a residual branch (batch, rows, columns, channels) for random
    examples, and divides it by 1 - `rate` for all other examples.
    """
    return nnx.Dropout(rate, broadcast_dims=(1, 2, 3))


def drop_path_rates(rate: float, num_blocks: int) -> list[float]:
    """Stochastic depth rate of each block, increasing linearly from 0 to `rate`."""
    return [rate * index / max(1, num_blocks - 1) for index in range(num_blocks)]


def scale_channels(channels: int, width: float) -> int:
    """Compute `width * channels`, rounded, at least 1."""
    return max(1, round(channels * width))
