"""The layers that models are made of: all of a model share one precision."""

from dataclasses import dataclass
from typing import Any, Literal

import jmp
from flax import nnx
from flax.typing import Initializer

from jaxtrain.models.batch_norm import BatchNorm

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
        split: Split | None = None,
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
            **_split_metadata(split),
            dtype=self.policy.compute_dtype,
            param_dtype=self.policy.param_dtype,
            rngs=self.rngs,
        )

    def linear(
        self, in_features: int, features: int, *, split: Split | None = None
    ) -> nnx.Linear:
        """Make a dense layer."""
        return nnx.Linear(
            in_features,
            features,
            **_split_metadata(split),
            dtype=self.policy.compute_dtype,
            param_dtype=self.policy.param_dtype,
            rngs=self.rngs,
        )

    def batch_norm(
        self, channels: int, *, scale: float = 1.0, split: bool = False
    ) -> BatchNorm:
        """Make a batch norm that starts at `scale`; `split`: its channels are."""
        return BatchNorm(
            channels,
            split_dim=-1 if split else None,
            groups=self.norm_groups,
            epsilon=1e-5,
            scale_init=nnx.initializers.constant(scale),
            dtype=self.policy.compute_dtype,
            param_dtype=self.policy.param_dtype,
            rngs=self.rngs,
        )


def _split_metadata(split: Split | None) -> dict[str, Any]:
    kernel: dict[Split | None, int] = {"out": -1, "in": -2}
    return {
        "kernel_metadata": {"split_dim": kernel.get(split)},
        "bias_metadata": {"split_dim": -1 if split == "out" else None},
    }


def split_dims(model: nnx.Module) -> dict[str, int | None]:
    """Return the dim of each array that the `model` axis splits (see `Layout`)."""
    return {
        "/".join(path): variable.get_metadata("split_dim", None)
        for path, variable in nnx.to_flat_state(nnx.state(model))
    }


def scale_channels(channels: int, width: float) -> int:
    """Return `width` times `channels`, rounded, and at least 1."""
    return max(1, round(channels * width))
