"""Inception v3 (Szegedy et al. 2015, arXiv:1512.00567), as in torchvision.

Layer names, dropout and initialization are torchvision's. The weight of the auxiliary
loss is from `research/slim/train_image_classifier.py` in tensorflow/models.
"""

from collections.abc import Iterator, Mapping
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from jaxtrain.models.auxiliary import AuxiliaryHead
from jaxtrain.models.blocks import ConvNorm
from jaxtrain.models.googlenet import InceptionNet
from jaxtrain.models.head import Head
from jaxtrain.models.layers import Layers, Split, scale_channels
from jaxtrain.models.pools import adaptive_average_pool, average_pool, max_pool_3x3


class ConvSpec(NamedTuple):
    """Specification of a convolution in a block; if strided, it has no padding."""

    channels: int
    size: int | tuple[int, int]
    stride: int = 1


# Consecutive convolutions. The last element may be a pair of parallel convolutions.
Chain = tuple[ConvSpec | tuple[ConvSpec, ConvSpec], ...]
# Branch name -> convolutions, for the branches of a block. The branch `POOL` starts
# with average pooling; a block without it has an additional max-pooling branch.
Branches = Mapping[str, Chain]
POOL = "branch_pool"


def _block_a(pool: int) -> Branches:
    return {
        "branch1x1": (ConvSpec(64, 1),),
        "branch5x5": (ConvSpec(48, 1), ConvSpec(64, 5)),
        "branch3x3dbl": (ConvSpec(64, 1), ConvSpec(96, 3), ConvSpec(96, 3)),
        POOL: (ConvSpec(pool, 1),),
    }


def _block_c(channels: int) -> Branches:
    c, row, column = channels, (1, 7), (7, 1)
    return {
        "branch1x1": (ConvSpec(192, 1),),
        "branch7x7": (ConvSpec(c, 1), ConvSpec(c, row), ConvSpec(192, column)),
        "branch7x7dbl": (
            *(ConvSpec(c, 1), ConvSpec(c, column), ConvSpec(c, row)),
            *(ConvSpec(c, column), ConvSpec(192, row)),
        ),
        POOL: (ConvSpec(192, 1),),
    }


BLOCK_B: Branches = {
    "branch3x3": (ConvSpec(384, 3, 2),),
    "branch3x3dbl": (ConvSpec(64, 1), ConvSpec(96, 3), ConvSpec(96, 3, 2)),
}
BLOCK_D: Branches = {
    "branch3x3": (ConvSpec(192, 1), ConvSpec(320, 3, 2)),
    "branch7x7x3": (
        *(ConvSpec(192, 1), ConvSpec(192, (1, 7)), ConvSpec(192, (7, 1))),
        ConvSpec(192, 3, 2),
    ),
}
FORK = (ConvSpec(384, (1, 3)), ConvSpec(384, (3, 1)))
BLOCK_E: Branches = {
    "branch1x1": (ConvSpec(320, 1),),
    "branch3x3": (ConvSpec(384, 1), FORK),
    "branch3x3dbl": (ConvSpec(448, 1), ConvSpec(384, 3), FORK),
    POOL: (ConvSpec(192, 1),),
}


class InceptionBlock(nnx.Module):
    """Inception block: parallel branches, concatenated along channels."""

    def __init__(
        self, in_channels: int, branches: Branches, *, width: float, layers: Layers
    ):
        # For each branch: its name, and the layer names for each element of its
        # `Chain`.
        self.chains: tuple[tuple[str, tuple[tuple[str, ...], ...]], ...] = ()
        self.channels = 0 if POOL in branches else in_channels
        for branch, chain in branches.items():
            channels, steps = in_channels, []
            for names, convs, split in _steps(branch, chain):
                for name, conv in zip(names, convs, strict=True):
                    layer = ConvNorm(
                        channels,
                        scale_channels(conv.channels, width),
                        conv.size,
                        stride=conv.stride,
                        padding=None if conv.stride == 1 else 0,
                        split=split,
                        layers=layers,
                    )
                    setattr(self, name, layer)
                channels = sum(scale_channels(c.channels, width) for c in convs)
                steps.append(names)
            self.channels += channels
            self.chains = (*self.chains, (branch, tuple(steps)))

    def __call__(self, x: jax.Array, rngs: nnx.Rngs | None = None) -> jax.Array:
        branches = []
        for branch, steps in self.chains:
            y = average_pool(x, 3, stride=1, padding=1) if branch == POOL else x
            for names in steps:
                y = _join([getattr(self, name)(y) for name in names])
            branches.append(y)
        if POOL not in dict(self.chains):
            branches.append(max_pool_3x3(x, stride=2))
        return _join(branches)


def _steps(
    branch: str, chain: Chain
) -> Iterator[tuple[tuple[str, ...], tuple[ConvSpec, ...], Split | None]]:
    """Yield (layer names, convolutions, split) for each element of a branch's chain.

    Successive convolutions are sharded in pairs over the `model` axis: `split` is "out"
    (output channels) for the first and "in" (input channels) for the second. It is None
    for parallel convolutions and an unpaired last convolution.
    """
    single = [isinstance(step, ConvSpec) for step in chain]
    num_paired = sum(single) // 2 * 2
    for index, step in enumerate(chain):
        name = branch if len(chain) == 1 else f"{branch}_{index + 1}"
        if isinstance(step, ConvSpec):
            split: Split = "in" if index % 2 else "out"
            yield (name,), (step,), split if index < num_paired else None
        else:
            yield (f"{name}a", f"{name}b"), step, None


def _join(parts: list[jax.Array]) -> jax.Array:
    return parts[0] if len(parts) == 1 else jnp.concatenate(parts, axis=-1)


class InceptionV3Auxiliary(AuxiliaryHead):
    """Auxiliary head: pooling, two convolutions and a dense layer.

    For images smaller than 299 pixels, the pooling is adaptive, with an output of 5x5
    pixels, the minimum for the second convolution.
    """

    def __init__(
        self,
        in_channels: int,
        num_outputs: int,
        *,
        weight: float,
        width: float,
        layers: Layers,
    ):
        super().__init__(weight)
        c0, c1 = scale_channels(128, width), scale_channels(768, width)
        self.conv0 = ConvNorm(in_channels, c0, 1, layers=layers)
        init = nnx.initializers.normal(0.01)
        self.conv1 = ConvNorm(c0, c1, 5, padding=0, init=init, layers=layers)
        init = nnx.initializers.normal(0.001)
        self.head = Head(c1, num_outputs, 0.0, init=init, layers=layers)

    def outputs(self, x: jax.Array, rngs: nnx.Rngs | None) -> jax.Array:
        # For images of 299x299 pixels, x is 17x17, and pooling as in torchvision gives
        # 5x5.
        if min(x.shape[1:3]) >= 17:
            x = average_pool(x, 5, stride=3)
        else:
            x = adaptive_average_pool(x, 5)
        return self.head(self.conv1(self.conv0(x)).mean((1, 2)), rngs)


def _and_pool(conv: ConvNorm, x: jax.Array, rngs: nnx.Rngs | None) -> jax.Array:
    return max_pool_3x3(conv(x), stride=2)


class InceptionV3(InceptionNet):
    """A stem, eleven blocks, and an auxiliary head in training."""

    min_size = 75

    stem = (
        ("conv2d_1a_3x3", 32, 3, {"stride": 2, "padding": 0}, ConvNorm.__call__),
        ("conv2d_2a_3x3", 32, 3, {"padding": 0, "split": "out"}, ConvNorm.__call__),
        ("conv2d_2b_3x3", 64, 3, {"split": "in"}, _and_pool),
        ("conv2d_3b_1x1", 80, 1, {"split": "out"}, ConvNorm.__call__),
        ("conv2d_4a_3x3", 192, 3, {"padding": 0, "split": "in"}, _and_pool),
    )
    blocks: ClassVar = {
        "mixed_5b": _block_a(32),
        "mixed_5c": _block_a(64),
        "mixed_5d": _block_a(64),
        "mixed_6a": BLOCK_B,
        "mixed_6b": _block_c(128),
        "mixed_6c": _block_c(160),
        "mixed_6d": _block_c(160),
        "mixed_6e": _block_c(192),
        "mixed_7a": BLOCK_D,
        "mixed_7b": BLOCK_E,
        "mixed_7c": BLOCK_E,
    }
    with_head: ClassVar = {"mixed_6e": "aux"}
    block, auxiliary = InceptionBlock, InceptionV3Auxiliary
    # torchvision also truncates at +-2, 20 standard deviations, which has no effect.
    init = staticmethod(nnx.initializers.normal(0.1))

    base_dropout, base_aux_weight = 0.5, 0.4
