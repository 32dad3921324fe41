"""The section `model`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from jaxtrain import own
from jaxtrain.config.base import Options, Section, row_of
from jaxtrain.config.combinations import Incompatible, Needs, check, option
from jaxtrain.config.metadata import field

QUANTIZE = option("model", "quantize")
COMBINATIONS = (
    Needs(option("model", "pretrained_digest"), option("model", "pretrained")),
    Incompatible(
        QUANTIZE,
        option("model", "transform"),
        "a custom function may compute with weights that are not rounded",
        "leave one of them out",
    ),
    Incompatible(
        QUANTIZE,
        option("train", "freeze"),
        "the quantization ranges of frozen layers are never calibrated",
        "leave train.freeze out, or use train.fine_tune, which trains all layers later",
    ),
)


@dataclass(frozen=True, kw_only=True)
class ModelConfig(Section):
    """The network."""

    name: Annotated[str, row_of("jaxtrain.models:MODELS")] = field(
        "convnet",
        help="Name of a model, or import path of a custom Flax module, NNX or Linen: "
        "path/to/file.py:Net or package.module:Net.",
        common=True,
        other_names="arch",
    )
    backbone: Annotated[str | None, row_of("jaxtrain.models:CLASSIFIERS")] = field(
        None,
        help="Backbone of a segmentation or detection model: a classifier.",
        part_option="keyword",
    )
    pretrained: str | None = field(
        None,
        help="Initial weights: the folder of a run, or of a model in timm's format; a "
        ".safetensors or .pth file, or LIBRARY:ARCHITECTURE=FILE; hf:OWNER/REPO. "
        "None: random initialization.",
        common=True,
        other_names="pretrained",
    )
    pretrained_digest: str | None = field(
        None,
        help="Expected SHA-256 of the file of the pretrained weights, or its first "
        "digits; None: not checked.",
    )
    width: float | None = field(
        None,
        help="Width multiplier: factor on the number of channels of every layer.",
        part_option="keyword",
    )
    dropout: float | None = field(
        None,
        help="Dropout rate before the last layer; in wide ResNets, between the "
        "convolutions of each block.",
        part_option="keyword",
        other_names="dropout drop",
        in_training=True,
    )
    drop_path: float | None = field(
        None,
        help="Stochastic depth: probability of dropping the residual branch of the "
        "last block in training; it rises linearly from 0 at the first block.",
        part_option="keyword",
        other_names="drop_path",
        in_training=True,
    )
    stem: Literal["imagenet", "cifar"] | None = field(
        None,
        help="First layers: imagenet, which downsample the image, or cifar, which keep "
        "its size, for images of 28 to 64 pixels.",
        part_option="keyword",
    )
    global_pool: Literal["max"] | None = field(
        None,
        help="Global pooling of a whitened_cnn: max of each channel; None: no pooling, "
        "the last layer gets the flattened feature map.",
        part_option="keyword",
    )
    norm_epsilon: float | None = field(
        None,
        help="Epsilon of the normalization layers, added to the variance; pretrained "
        "weights need the value that they were trained with.",
        part_option="keyword",
    )
    padding: Literal["symmetric", "same"] | None = field(
        None,
        help="Padding of strided convolutions: symmetric, or same, the SAME padding of "
        "TensorFlow, which weights from TensorFlow need.",
        part_option="keyword",
    )
    output_stride: int | None = field(
        None,
        help="Output stride of DeepLab and FCN, 8, 16 or 32: pixels of the image per "
        "pixel of the backbone's last feature map; later stages are dilated instead of "
        "strided.",
        part_option="keyword",
    )
    aux_weight: float | None = field(
        None,
        help="Weight of the loss of each auxiliary head in training; 0: no auxiliary "
        "heads.",
        part_option="keyword",
        in_training=True,
    )

    decoder_channels: tuple[int, ...] | None = field(
        None,
        help="U-Net: channels of each decoder block; each block doubles the "
        "resolution, and the logits are resized to the image. None: 256, halved from "
        "block to block down to 16, times the width, up to the size of the image.",
        part_option="keyword",
    )
    pyramid_channels: int | None = field(
        None,
        help="Detection: channels of each level of the feature pyramid.",
        part_option="keyword",
    )
    head_layers: int | None = field(
        None,
        help="Detection: convolutions of each head before the output convolution.",
        part_option="keyword",
    )

    options: Options = field(
        default_factory=dict,
        help="Constructor arguments of a custom model, by name.",
        part_option=True,
    )
    channels: dict[str, int] = field(
        default_factory=dict,
        help="Channels of a pruned and compacted model, by the first layer that "
        "outputs them; {}: not compacted.",
        part_option=True,
    )
    transform: str | None = field(
        None,
        help="Custom function that transforms the built model, such as a quantizer: "
        "path/to/file.py:name or package.module:name. None: no transform.",
    )
    quantize: Literal["int8"] | None = field(
        None,
        help="Quantization-aware training: int8 rounds weights and activations as the "
        "exported int8 model does. None: no rounding.",
    )

    @classmethod
    def removed(cls) -> Mapping[str, Any]:
        return {
            "join_images": None,
        }

    def validate(self) -> None:
        self._positive("width", "pyramid_channels", "head_layers")
        self._fraction("dropout", "drop_path")
        self._positive("norm_epsilon")
        self._all(
            ["decoder_channels"],
            lambda channels: bool(channels) and min(channels) > 0,
            "one or more positive numbers",
        )
        self._all(["output_stride"], (8, 16, 32).__contains__, "8, 16 or 32")
        self._not_negative("aux_weight")
        self._all(["transform"], own.is_own, own.FORMS)
        self._digest("pretrained_digest")
        self._all(
            ["channels"],
            lambda channels: all(number > 0 for number in channels.values()),
            "numbers of channels above 0",
        )
        check(self, COMBINATIONS, "model")
