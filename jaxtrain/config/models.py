"""Model families and their options, for the section `model` of a config.

None selects the default of the model, which may depend on the size of the model.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

import tyro

from jaxtrain.config.metadata import field
from jaxtrain.config.model import ModelConfig

WIDTH = "Width multiplier: factor on the number of channels of every layer."
DROPOUT = "Dropout rate before the last layer."
DROP_PATH = (
    "Stochastic depth: probability of dropping the residual branch of the last block "
    "in training; it rises linearly from 0 at the first block."
)
STEM = (
    "First layers: imagenet, which downsample the image, or cifar, which keep its "
    "size, for images of 28 to 64 pixels."
)
NORM_EPSILON = (
    "Epsilon of the normalization layers, added to the variance; pretrained weights "
    "need the value that they were trained with."
)
PADDING = (
    "Padding of strided convolutions: symmetric, or same, the SAME padding of "
    "TensorFlow, which weights from TensorFlow need."
)
AUX_WEIGHT = (
    "Weight of the loss of each auxiliary head in training; 0: no auxiliary heads."
)
Stem = Literal["imagenet", "cifar"]
Padding = Literal["symmetric", "same"]


@dataclass(frozen=True, kw_only=True)
class Scaled(ModelConfig):
    """Options of models with a width multiplier and dropout."""

    width: float | None = field(None, help=WIDTH)
    dropout: float | None = field(
        None, help=DROPOUT, other_names="dropout drop", in_training=True
    )

    def validate(self) -> None:
        super().validate()
        self._positive("width")
        self._fraction("dropout")


@dataclass(frozen=True, kw_only=True)
class Residual(Scaled):
    """Options of models with residual blocks."""

    drop_path: float | None = field(
        None, help=DROP_PATH, other_names="drop_path", in_training=True
    )

    def validate(self) -> None:
        super().validate()
        self._fraction("drop_path")


@dataclass(frozen=True, kw_only=True)
class Stemmed(Residual):
    """Options of residual models that can have a stem for large or small images."""

    stem: Stem | None = field(None, help=STEM)


@dataclass(frozen=True, kw_only=True)
class Normalized(Stemmed):
    """Options of models whose normalization layers have a configurable epsilon."""

    norm_epsilon: float | None = field(None, help=NORM_EPSILON)

    def validate(self) -> None:
        super().validate()
        self._positive("norm_epsilon")


@dataclass(frozen=True, kw_only=True)
class Padded(Normalized):
    """Options of models that can pad as TensorFlow or as PyTorch does."""

    padding: Padding | None = field(None, help=PADDING)


@dataclass(frozen=True, kw_only=True)
class LeNetConfig(ModelConfig):
    """LeNet-5 (LeCun et al. 1998)."""

    name: str = field("lenet", init=False)


@dataclass(frozen=True, kw_only=True)
class ConvNetConfig(Scaled):
    """Small convolutional networks for small images."""

    name: Annotated[Literal["convnet", "cnn4"], tyro.conf.Suppress] = field("convnet")


@dataclass(frozen=True, kw_only=True)
class VGGConfig(Scaled):
    """VGG (Simonyan & Zisserman 2014), with or without batch norm."""

    name: Annotated[
        Literal[
            "vgg11",
            "vgg11_bn",
            "vgg13",
            "vgg13_bn",
            "vgg16",
            "vgg16_bn",
            "vgg19",
            "vgg19_bn",
        ],
        tyro.conf.Suppress,
    ] = field("vgg16_bn")


@dataclass(frozen=True, kw_only=True)
class ResNetConfig(Stemmed):
    """ResNets (He et al. 2015, 2016) and their variants."""

    name: Annotated[
        Literal[
            "resnet18",
            "resnet34",
            "resnet50",
            "resnet101",
            "resnet152",
            "resnet18d",
            "resnet50d",
            "seresnet18",
            "seresnet50",
            "wide_resnet50_2",
            "resnext50_32x4d",
            "preact_resnet18",
            "preact_resnet50",
        ],
        tyro.conf.Suppress,
    ] = field("resnet50")


@dataclass(frozen=True, kw_only=True)
class WideResNetConfig(Residual):
    """Wide ResNets for small images (Zagoruyko & Komodakis 2016)."""

    name: str = field("wide_resnet28_10", init=False)
    dropout: float | None = field(
        None,
        help="Dropout rate between the convolutions of each block.",
        other_names="dropout drop",
        in_training=True,
    )


@dataclass(frozen=True, kw_only=True)
class RegNetConfig(Stemmed):
    """RegNetY (Radosavovic et al. 2020)."""

    name: Annotated[
        Literal["regnet_y_3_2gf", "regnet_y_4gf", "regnet_y_8gf", "regnet_y_8gf_paper"],
        tyro.conf.Suppress,
    ] = field("regnet_y_4gf")


@dataclass(frozen=True, kw_only=True)
class InceptionConfig(Scaled):
    """GoogLeNet and Inception v3 (Szegedy et al. 2014, 2015)."""

    name: Annotated[Literal["googlenet", "inception_v3"], tyro.conf.Suppress] = field(
        "inception_v3"
    )
    norm_epsilon: float | None = field(None, help=NORM_EPSILON)
    aux_weight: float | None = field(None, help=AUX_WEIGHT, in_training=True)

    def validate(self) -> None:
        super().validate()
        self._positive("norm_epsilon")
        self._not_negative("aux_weight")


@dataclass(frozen=True, kw_only=True)
class DenseNetConfig(Scaled):
    """DenseNet (Huang et al. 2016)."""

    name: str = field("densenet121", init=False)
    stem: Stem | None = field(None, help=STEM)


@dataclass(frozen=True, kw_only=True)
class MobileNetConfig(Padded):
    """MobileNet v2 and v3 (Sandler et al. 2018, Howard et al. 2019)."""

    name: Annotated[
        Literal["mobilenet_v2", "mobilenet_v3_small", "mobilenet_v3_large"],
        tyro.conf.Suppress,
    ] = field("mobilenet_v2")


@dataclass(frozen=True, kw_only=True)
class EfficientNetConfig(Padded):
    """EfficientNet (Tan & Le 2019) and EfficientNetV2 (Tan & Le 2021)."""

    name: Annotated[
        Literal[
            "efficientnet_b0",
            "efficientnet_b1",
            "efficientnet_b2",
            "efficientnet_b3",
            "efficientnet_b4",
            "efficientnet_v2_s",
        ],
        tyro.conf.Suppress,
    ] = field("efficientnet_b0")


@dataclass(frozen=True, kw_only=True)
class ConvNeXtConfig(Normalized):
    """ConvNeXt (Liu et al. 2022)."""

    name: Annotated[
        Literal["convnext_tiny", "convnext_small", "convnext_base"],
        tyro.conf.Suppress,
    ] = field("convnext_tiny")


@dataclass(frozen=True, kw_only=True)
class WhitenedCNNConfig(Scaled):
    """CNNs with a whitening layer, for CIFAR-10 in seconds (Jordan 2024)."""

    name: Annotated[
        Literal["whitened_cnn", "whitened_cnn_small"], tyro.conf.Suppress
    ] = field("whitened_cnn")
    global_pool: Literal["max"] | None = field(
        None,
        help="Global pooling: max of each channel; None: no pooling, the last layer "
        "gets the flattened feature map.",
    )
