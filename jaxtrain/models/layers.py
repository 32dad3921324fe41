"""Layers, and a factory of layers with a common precision policy."""

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

# Initializer that preserves the variance of activations; Flax's default.
lecun_normal = nnx.initializers.lecun_normal()
# Initializers for ReLU (He et al. 2015, arXiv:1502.01852): a normal distribution with
# variance 2 / fan, not truncated, like PyTorch's `kaiming_normal_` and unlike Flax's
# `he_normal`. The fan-out preserves the variance of gradients (equation 14), the fan-in
# the variance of activations (equation 10). As in JAX, the fan-out includes the output
# channels of all groups, and the fan-in the input channels of one group.
he_fan_out = nnx.initializers.variance_scaling(2.0, "fan_out", "normal")
he_fan_in = nnx.initializers.variance_scaling(2.0, "fan_in", "normal")

# Split of a layer over the `model` axis. "out": each device computes a shard of the
# output channels. "in": each device reads a shard of the input channels, and the
# outputs are all-reduced. An "in" layer follows an "out" layer and reads its shards, so
# that the pair needs only one all-reduce (Megatron-LM, arXiv:1909.08053). Layers in
# between, such as a batch norm, are split in the same way.
Split = Literal["out", "in"]


@dataclass(frozen=True, kw_only=True)
class Layers:
    """Factory of layers with a common precision policy and common RNG streams."""

    policy: jmp.Policy
    rngs: nnx.Rngs
    # Number of groups of a training batch that batch norms normalize separately.
    norm_groups: int = 1
    # Epsilon of norms. For layer norms, 1e-6 is usual.
    norm_epsilon: float = 1e-5
    # Defaults for layers: initializer of kernels, whether convolutions have a bias, and
    # whether their padding is "SAME", as in TensorFlow.
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
          size: Number of rows and columns of the kernel.
          stride: Stride along rows and columns.
          padding: Zero padding. "SAME" is TensorFlow's: with stride 2, a 3x3 kernel and
            an even image size, only the bottom and right are padded. None means "SAME"
            if `same_padding` is set, else torchvision's padding: equal on all sides, so
            that the image size is preserved with stride 1.
          dilation: Dilation of the kernel.
          groups: Number of channel groups; `in_channels` for a depthwise convolution.
          bias: Whether the convolution has a bias. Defaults to `conv_bias`.
          init: Initializer of the kernel. Defaults to the attribute `init`.
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
        """Make a dense layer; `init` and `split` are described in `conv`."""
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
          momentum: Weight of the old running statistics in an update; 1 - PyTorch's
            momentum.
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
    """`nnx.Conv` with a layer path, optional quantizers and per-device weights."""

    @in_own_scope
    def __call__(self, x: jax.Array) -> jax.Array:  # pyright: ignore
        """Convolve images (batch, rows, columns, channels)."""
        return self.quantize_output(
            self.with_own_copy(nnx.Conv.__call__, self.quantize_input(x))
        )


class Linear(NamedLayer, Ranged, Copied, nnx.Linear):
    """`nnx.Linear` with a layer path, optional quantizers and per-device weights."""

    @in_own_scope
    def __call__(self, x: jax.Array) -> jax.Array:  # pyright: ignore
        """Apply the layer to features (batch, ..., features)."""
        return self.quantize_output(
            self.with_own_copy(nnx.Linear.__call__, self.quantize_input(x))
        )


class Widened(NamedLayer):
    """Mixin that makes Flax's norms compute in at least float32, and round once."""

    def __init__(self, *sizes: int, dtype: Any, **options: Any):
        # Compute the variance in two passes: E[x^2] - mean^2 is inaccurate if the mean
        # is much larger than the standard deviation.
        options |= {"dtype": wide(dtype), "use_fast_variance": False}
        super().__init__(*sizes, **options)
        self.output_dtype = dtype

    @in_own_scope
    def __call__(self, x: jax.Array) -> jax.Array:
        """Normalize (batch, ..., channels); the result has the layer's dtype."""
        return super().__call__(x).astype(self.output_dtype)  # pyright: ignore


class LayerNorm(Widened, nnx.LayerNorm):  # pyright: ignore
    """`nnx.LayerNorm` with a layer path, computed in at least float32."""


class GroupNorm(Widened, nnx.GroupNorm):  # pyright: ignore
    """`nnx.GroupNorm` with a layer path, computed in at least float32."""


def drop_path(rate: float) -> nnx.Dropout:
    """Make a stochastic depth layer (Huang et al. 2016, arXiv:1603.09382).

    In training, the layer zeroes its input, a residual branch (B, H, W, C), for random
    examples, and divides it by 1 - `rate` for the other examples.
    """
    return nnx.Dropout(rate, broadcast_dims=(1, 2, 3))


def drop_path_rates(rate: float, num_blocks: int) -> list[float]:
    """Drop rate of each block, which increases linearly from 0 to `rate`."""
    return [rate * index / max(1, num_blocks - 1) for index in range(num_blocks)]


def scale_channels(channels: int, width: float) -> int:
    """Round `channels * width` to an integer of at least 1."""
    return max(1, round(channels * width))
