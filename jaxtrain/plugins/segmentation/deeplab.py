"""DeepLabV3 (Chen et al. 2017, arXiv:1706.05587) and FCN with dilated ResNets.

As in torchvision, dilation replaces the strides of the backbone's last two stages. In
training, an auxiliary head on the features of the third stage adds a loss; its default
weight is from torchvision's training script.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import nnx

from jaxtrain.errors import UserError
from jaxtrain.models.auxiliary import AuxiliaryHead
from jaxtrain.models.blocks import ConvNorm
from jaxtrain.models.head import Head
from jaxtrain.models.layers import Layers, he_fan_in, scale_channels
from jaxtrain.models.resnet import Stem
from jaxtrain.plugins.segmentation.dense import DenseModel, resized
from jaxtrain.plugins.segmentation.options import DeepLabConfig

# FCN heads, including the auxiliary head: dropout rate, and reduction factor of the
# number of channels.
DROPPED, NARROWED = 0.1, 4
# Channels of each ASPP branch, and dilation rates of the three dilated branches.
CHANNELS, RATES = 256, (12, 24, 36)


class AuxiliaryFCN(AuxiliaryHead):
    """Auxiliary FCN head on the third stage's features, used only in training."""

    def __init__(
        self,
        weight: float,
        in_channels: int,
        num_outputs: int,
        dropout: float,
        *,
        layers: Layers,
    ):
        super().__init__(weight)
        channels = max(1, in_channels // NARROWED)
        self.conv = ConvNorm(in_channels, channels, 3, layers=layers)
        self.head = Head(channels, num_outputs, dropout, layers=layers)

    def outputs(self, x: Any, rngs: nnx.Rngs | None) -> jax.Array:
        _, features, images = x
        return resized(self.head(self.conv(features), rngs), images.shape[1:3])


class ASPP(nnx.Module):
    """Atrous spatial pyramid pooling: parallel dilated convolutions and global pooling.

    In the pooling branch, batch norm gets one value per image and channel.
    """

    def __init__(
        self, in_channels: int, channels: int, dropout: float, *, layers: Layers
    ):
        self.conv1 = ConvNorm(in_channels, channels, 1, layers=layers)
        self.dilated: tuple[str, ...] = ()
        for number, rate in enumerate(RATES, 2):
            name = f"conv{number}"
            conv = ConvNorm(in_channels, channels, 3, dilation=rate, layers=layers)
            setattr(self, name, conv)
            self.dilated = (*self.dilated, name)
        self.pooled = ConvNorm(in_channels, channels, 1, layers=layers)
        num = 2 + len(RATES)
        self.project = ConvNorm(num * channels, channels, 1, layers=layers)
        self.dropout = nnx.Dropout(dropout)

    def __call__(self, x: jax.Array, rngs: nnx.Rngs | None) -> jax.Array:
        pooled = self.pooled(x.mean((1, 2), keepdims=True))
        branches = [
            self.conv1(x),
            *(getattr(self, name)(x) for name in self.dilated),
            jnp.broadcast_to(pooled, (*x.shape[:3], pooled.shape[3])),
        ]
        x = self.project(jnp.concatenate(branches, axis=-1))
        return self.dropout(x, rngs=rngs)


class DilatedNet(DenseModel):
    """Base class of dilated ResNets with a decode head and an auxiliary head.

    The logits are upsampled bilinearly to the height and width of the images. The
    auxiliary head is used only in training.
    """

    Options: ClassVar = DeepLabConfig

    backbone_options: ClassVar = ("width", "stem", "drop_path")

    base_backbone: ClassVar[str] = "resnet50"
    base_dropout: ClassVar[float]

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        num_outputs: int,
        *,
        layers: Layers,
        backbone: str | None = None,
        width: float | None = None,
        dropout: float | None = None,
        drop_path: float | None = None,
        stem: Stem | None = None,
        output_stride: int = 8,
        aux_weight: float = 0.5,
    ):
        """Create the layers; `dropout` also applies to the auxiliary head."""
        name = self.base_backbone if backbone is None else backbone
        levels = self.add_backbone(
            *(name, image_shape, layers),
            keep={"stage4_block1"} if aux_weight else (),
            output_stride=output_stride,
            width=width,
            drop_path=drop_path,
            stem=stem,
        )
        if output_stride > self.stride:
            raise UserError(
                f"model.output_stride = {output_stride} has no effect: the stride of "
                f"model.backbone = {name!r} is only {self.stride}; leave "
                "model.output_stride out"
            )
        layers = dataclasses.replace(layers, init=he_fan_in)
        if aux_weight:
            if len(levels) < 2:
                raise UserError(
                    f"model.aux_weight = {aux_weight}: the auxiliary head requires a "
                    f"fourth stage, which model.backbone = {name!r} lacks; set "
                    "model.aux_weight = 0"
                )
            dropped = DROPPED if dropout is None else dropout
            arguments = levels[0].channels, num_outputs, dropped
            aux = AuxiliaryFCN(aux_weight, *arguments, layers=layers)
            self.add_piece(AuxiliaryHead.__call__, aux=aux)
        dropped = self.base_dropout if dropout is None else dropout
        channels = scale_channels(CHANNELS, 1.0 if width is None else width)
        self.add_decoder(
            levels[-1].channels, channels, num_outputs, dropped, layers=layers
        )

    def add_decoder(
        self,
        features: int,
        channels: int,
        num_outputs: int,
        dropout: float,
        *,
        layers: Layers,
    ) -> None:
        """Append the decode head, whose input has `features` channels."""
        raise NotImplementedError


class FCN(DilatedNet):
    """Dilated ResNet with an FCN head (Long et al. 2014, arXiv:1411.4038)."""

    base_dropout = DROPPED

    def add_decoder(
        self,
        features: int,
        channels: int,
        num_outputs: int,
        dropout: float,
        *,
        layers: Layers,
    ) -> None:
        narrow = max(1, features // NARROWED)
        last = ConvNorm(features, narrow, 3, layers=layers)
        self.add_piece(_on_last, last=last)
        head = Head(narrow, num_outputs, dropout, layers=layers)
        self.add_piece(_map_head, head=head)


class DeepLabV3(DilatedNet):
    """Dilated ResNet with a DeepLabV3 head: `ASPP` and a 3x3 convolution."""

    base_dropout = 0.5

    def add_decoder(
        self,
        features: int,
        channels: int,
        num_outputs: int,
        dropout: float,
        *,
        layers: Layers,
    ) -> None:
        aspp = ASPP(features, channels, dropout, layers=layers)
        self.add_piece(_on_last, aspp=aspp)
        last = ConvNorm(channels, channels, 3, layers=layers)
        self.add_piece(_on_last, last=last)
        head = Head(channels, num_outputs, 0.0, layers=layers)
        self.add_piece(_map_head, head=head)


def _on_last(layer: Any, x: Sequence[Any], rngs: nnx.Rngs | None) -> Any:
    """Apply a layer to the deepest features, `x[0]`; keep the images, `x[-1]`."""
    return layer(x[0], rngs), x[-1]


def _map_head(head: Any, x: Sequence[Any], rngs: nnx.Rngs | None) -> jax.Array:
    return resized(head(x[0], rngs), x[-1].shape[1:3])


FCNResNet101 = FCN.variant(base_backbone="resnet101")
DeepLabV3ResNet101 = DeepLabV3.variant(base_backbone="resnet101")
