"""Options of the segmentation task and of its models."""

from dataclasses import dataclass
from typing import Annotated, Literal

import tyro

from jaxtrain.config.base import report, row_of
from jaxtrain.config.metadata import field
from jaxtrain.config.models import AUX_WEIGHT, Padded, Stemmed
from jaxtrain.config.part import Part
from jaxtrain.data.pixel_classes import MAX_VALUE

# Losses that support `class_weights`.
WEIGHTED = ("cross_entropy", "focal", "cross_entropy_dice")
BACKBONE = "Name of the classifier used as backbone; None: the model's default."


@dataclass(frozen=True, kw_only=True)
class SegmentationConfig(Part):
    """Semantic segmentation: a class for each pixel."""

    name: str = field("segmentation", init=False)
    loss: Literal["cross_entropy", "focal", "dice", "cross_entropy_dice", "lovasz"] = (
        field(
            "cross_entropy",
            help="Training loss over the pixels of an image; evaluations report the "
            "cross entropy.",
        )
    )
    ignore_value: int = field(
        MAX_VALUE,
        help="Class that the loss and the metrics ignore; 255, the value of pixels "
        "outside of an image, is always ignored.",
    )
    class_weights: Literal["balanced"] | tuple[float, ...] | None = field(
        None,
        help="Weight of each class in the cross entropy or focal loss; balanced: the "
        "inverse pixel frequencies of the training split; None: 1.",
    )

    def validate(self) -> None:
        if self.class_weights is not None and self.loss not in WEIGHTED:
            report(
                f"task.class_weights = {self.class_weights!r} has no effect with "
                f"task.loss = {self.loss!r}: leave task.class_weights out, or set "
                f"task.loss to {' or '.join(WEIGHTED)}",
                "class_weights",
            )
        in_range = 0 <= self.ignore_value <= MAX_VALUE
        self._check("ignore_value", in_range, f"a number from 0 to {MAX_VALUE}")
        weights = self.class_weights
        ok = not isinstance(weights, tuple) or (
            min(weights, default=-1) >= 0 and max(weights) > 0
        )
        expected = "balanced, or values of 0 or more, at least one above 0"
        self._check("class_weights", ok, expected)


@dataclass(frozen=True, kw_only=True)
class UNetConfig(Padded):
    """U-Net with a classifier as the encoder (Ronneberger et al. 2015)."""

    name: str = field("unet", init=False)
    backbone: Annotated[str | None, row_of("jaxtrain.models:CLASSIFIERS")] = field(
        None, help=BACKBONE
    )
    decoder_channels: tuple[int, ...] | None = field(
        None,
        help="Number of channels of each decoder block. Each block doubles the "
        "resolution; the logits are resized to the image size. None: as many blocks as "
        "reach the image size; the first has 256 channels, and each later block half "
        "as many, but at least 16, all multiplied by model.width.",
    )
    aux_weight: float | None = field(None, help=AUX_WEIGHT, in_training=True)

    def validate(self) -> None:
        super().validate()
        self._not_negative("aux_weight")
        self._all(
            ["decoder_channels"],
            lambda channels: bool(channels) and min(channels) > 0,
            "one or more positive numbers",
        )


@dataclass(frozen=True, kw_only=True)
class DeepLabConfig(Stemmed):
    """DeepLabv3 and FCN with a ResNet (Chen et al. 2017, Long et al. 2014)."""

    name: Annotated[
        Literal[
            "deeplabv3_resnet50",
            "deeplabv3_resnet101",
            "fcn_resnet50",
            "fcn_resnet101",
        ],
        tyro.conf.Suppress,
    ] = field("deeplabv3_resnet50")
    backbone: Annotated[str | None, row_of("jaxtrain.models:CLASSIFIERS")] = field(
        None, help=BACKBONE
    )
    output_stride: int | None = field(
        None,
        help="Output stride: ratio of the image size to the size of the backbone's "
        "last feature map, 8, 16 or 32. Stages that would exceed this stride use "
        "dilation instead. None: 8.",
    )
    aux_weight: float | None = field(None, help=AUX_WEIGHT, in_training=True)

    def validate(self) -> None:
        super().validate()
        self._all(["output_stride"], (8, 16, 32).__contains__, "8, 16 or 32")
        self._not_negative("aux_weight")
