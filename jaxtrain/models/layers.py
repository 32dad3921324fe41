"""The layers that models are made of: all of a model share one precision."""

from dataclasses import dataclass

import jmp
from flax import nnx
from flax.typing import Initializer

from jaxtrain.models.batch_norm import BatchNorm

# Keeps the variance of the activations from layer to layer: the default of Flax.
lecun_normal = nnx.initializers.lecun_normal()


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
