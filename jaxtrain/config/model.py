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
        "a function of your own may compute with other weights than those that are "
        "rounded",
        "leave one of both out",
    ),
    Incompatible(
        QUANTIZE,
        option("train", "freeze"),
        "layers that are frozen never meet a batch that sets their ranges",
        "leave train.freeze out, or use train.fine_tune, which trains all layers later",
    ),
)


@dataclass(frozen=True, kw_only=True)
class ModelConfig(Section):
    """The network."""

    name: Annotated[str, row_of("jaxtrain.models:MODELS")] = field(
        "convnet",
        help="The model, or any Flax module of your own, NNX or Linen: "
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
        help="Initial weights: the folder of a run, or of a model in timm's form; a "
        "file .safetensors or .pth, or LIBRARY:ARCHITECTURE=FILE; hf:OWNER/REPO. "
        "None: random ones.",
        common=True,
        other_names="pretrained",
    )
    pretrained_digest: str | None = field(
        None,
        help="Expected SHA-256 of the file of the pretrained weights, or its first "
        "digits; None: any.",
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
        help="Stochastic depth: probability of dropping a residual branch in training, "
        "that of the last block, from which it falls to that of the first.",
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
        help="Global pooling of a whitened_cnn: max, of each channel; None: the last "
        "layer sees all pixels, and so their positions.",
        part_option="keyword",
    )
    norm_epsilon: float | None = field(
        None,
        help="Epsilon of the norms, added to the variance; pretrained weights belong "
        "to one value.",
        part_option="keyword",
    )
    padding: Literal["symmetric", "same"] | None = field(
        None,
        help="Padding of strided convolutions: symmetric, or same as in TensorFlow, "
        "which weights from there need.",
        part_option="keyword",
    )
    output_stride: int | None = field(
        None,
        help="Output stride of DeepLab and FCN, 8, 16 or 32: pixels of the image per "
        "pixel of the backbone's last layer, whose kernels are dilated in the place "
        "of further strides.",
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
        help="Of a U-Net: channels of each block of its decoder, each of which "
        "doubles the size; logits are resized from where it ends. None: from 256 "
        "halved down to 16, up to the size of the image, times the width.",
        part_option="keyword",
    )
    pyramid_channels: int | None = field(
        None,
        help="Of a model of boxes: channels of each level of its pyramid.",
        part_option="keyword",
    )
    head_layers: int | None = field(
        None,
        help="Of a model of boxes: convolutions of each of its heads, before the last "
        "one.",
        part_option="keyword",
    )

    options: Options = field(
        default_factory=dict,
        help="Of a model of your own: what its constructor takes.",
        part_option=True,
    )
    channels: dict[str, int] = field(
        default_factory=dict,
        help="Channels of a compacted model, by the first layer that outputs them; {}: "
        "all.",
        part_option=True,
    )
    transform: str | None = field(
        None,
        help="A function of your own that changes the model once it is built, such as "
        "quantisation: path/to/file.py:name or package.module:name. None: none does.",
    )
    quantize: Literal["int8"] | None = field(
        None,
        help="Train with weights and activations rounded to integers of 8 bits, as an "
        "exported file computes with them. None: with floats.",
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
