"""U-Net (Ronneberger et al. 2015, arXiv:1505.04597) with any classifier as backbone.

As in segmentation_models.pytorch, each decoder block upsamples by 2, concatenates the
backbone features of the same stride (skip connection), and applies two convolutions
with batch norm. At strides without backbone features, such as stride 1 with a ResNet,
there is no skip connection. If the decoder has too few blocks to reach stride 1, its
logits are resized to the image size, as in FCN.

With `aux_weight`, an auxiliary 1x1 head on the last backbone features adds a loss in
training; its gradients bypass the decoder (deep supervision; Lee et al. 2014,
arXiv:1409.5185).
"""

import dataclasses
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
from flax import nnx

from jaxtrain.errors import UserError
from jaxtrain.models.auxiliary import AuxiliaryHead
from jaxtrain.models.blocks import ConvNorm
from jaxtrain.models.head import Head
from jaxtrain.models.layers import Layers, he_fan_in, scale_channels
from jaxtrain.plugins.segmentation.dense import DenseModel, doubled, resized
from jaxtrain.plugins.segmentation.options import UNetConfig

# Default numbers of channels: of the first decoder block, and the minimum. Each later
# block halves the number.
CHANNELS, LEAST = 256, 16


class UpBlock(nnx.Module):
    """Convolutions of a decoder block, after upsampling and skip connection."""

    def __init__(self, in_channels: int, channels: int, *, layers: Layers):
        self.conv1 = ConvNorm(in_channels, channels, 3, split="out", layers=layers)
        self.conv2 = ConvNorm(channels, channels, 3, split="in", layers=layers)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.conv2(self.conv1(x))


class AuxiliaryDense(AuxiliaryHead):
    """Auxiliary 1x1 head on the last backbone features, used only in training."""

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
        self.head = Head(in_channels, num_outputs, dropout, layers=layers)

    def outputs(self, x: Any, rngs: nnx.Rngs | None) -> jax.Array:
        features, *_, images = x
        return resized(self.head(features, rngs), images.shape[1:3])


class UNet(DenseModel):
    """U-Net: backbone, decoder blocks, and 1x1 head."""

    Options: ClassVar = UNetConfig

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        num_outputs: int,
        *,
        layers: Layers,
        backbone: str = "resnet18",
        width: float | None = None,
        dropout: float = 0.0,
        drop_path: float | None = None,
        stem: Literal["imagenet", "cifar"] | None = None,
        norm_epsilon: float | None = None,
        padding: Literal["symmetric", "same"] | None = None,
        decoder_channels: tuple[int, ...] | None = None,
        aux_weight: float = 0.0,
    ):
        """Create the layers; the output logits have the height and width of the images.

        Raises:
          UserError: There are more than log2(backbone stride) decoder blocks.
        """
        *skips, last = self.add_backbone(
            backbone,
            image_shape,
            layers,
            width=width,
            drop_path=drop_path,
            stem=stem,
            norm_epsilon=norm_epsilon,
            padding=padding,
        )
        features, stride = last.channels, last.stride
        layers = dataclasses.replace(layers, init=he_fan_in)
        if aux_weight:
            aux = AuxiliaryDense(
                aux_weight, features, num_outputs, dropout, layers=layers
            )
            self.add_piece(AuxiliaryHead.__call__, aux=aux)
        for channels in decoder_channels or _usual_channels(stride, width):
            if stride == 1:
                raise UserError(
                    f"model.decoder_channels = {decoder_channels}: expected at most "
                    f"{last.stride.bit_length() - 1} numbers, as each level halves the "
                    f"stride, and model.backbone = {backbone!r} has a stride of "
                    f"{last.stride}"
                )
            stride, joins = stride // 2, False
            if skips and skips[-1].stride >= stride:
                stride, joined = skips.pop()
                features, joins = features + joined, True
            block = UpBlock(features, channels, layers=layers)
            apply = _up_and_join if joins else _up_to(stride)
            self.add_piece(apply, **{f"up{stride}": block})
            features = channels
        head = Head(features, num_outputs, dropout, layers=layers)
        self.add_piece(_head, head=head)


def _usual_channels(stride: int, width: float | None) -> list[int]:
    """Default channels of each decoder block, for a backbone with this stride."""
    halvings = range(stride.bit_length() - 1)
    bases = (max(LEAST, CHANNELS >> n) for n in halvings)
    return [scale_channels(base, 1.0 if width is None else width) for base in bases]


def _up_and_join(block: UpBlock, x: Any, rngs: nnx.Rngs | None) -> Any:
    x, skip, *rest = x
    x = doubled(x, skip.shape[1:3])
    return (block(jnp.concatenate([x, skip], axis=-1)), *rest)


def _up_to(stride: int) -> Any:
    """Return a function that upsamples to `stride` and applies an `UpBlock`."""

    def up(block: UpBlock, x: Any, rngs: nnx.Rngs | None) -> Any:
        x, *rest = x
        rows, columns = (-(-n // stride) for n in rest[-1].shape[1:3])
        return (block(doubled(x, (rows, columns))), *rest)

    return up


def _head(head: Head, x: Any, rngs: nnx.Rngs | None) -> jax.Array:
    # With unpadded convolutions, the head's output may be smaller than the images.
    return resized(head(x[0], rngs), x[-1].shape[1:3])
