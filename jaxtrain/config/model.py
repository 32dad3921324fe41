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
        help="Of a model of maps or boxes: the classifier whose features it looks at.",
        part_option="keyword",
    )
    pretrained: str | None = field(
        None,
        help="Weights that the run begins with: the folder of a run, or of a model in "
        "timm's form; a file .safetensors or .pth, or LIBRARY:ARCHITECTURE=FILE; "
        "hf:OWNER/REPO. None: random ones.",
        common=True,
        other_names="pretrained",
    )
    pretrained_digest: str | None = field(
        None,
        help="SHA-256 of their file, or its first digits, which must be so; None: any.",
    )
    width: float | None = field(
        None,
        help="Factor on the number of channels of every layer.",
        part_option="keyword",
    )
    dropout: float | None = field(
        None,
        help="Probability of dropping a feature before the last layer; in wide "
        "ResNets, between the convolutions of each block.",
        part_option="keyword",
        other_names="dropout drop",
        in_training=True,
    )
    drop_path: float | None = field(
        None,
        help="Probability of dropping a residual branch in training (stochastic "
        "depth): that of the last block, from which it falls to that of the first.",
        part_option="keyword",
        other_names="drop_path",
        in_training=True,
    )
    stem: Literal["imagenet", "cifar"] | None = field(
        None,
        help="First layers: imagenet, which make the image smaller, or cifar, which "
        "keep its size, for images of 28 to 64 pixels.",
        part_option="keyword",
    )
    global_pool: Literal["max"] | None = field(
        None,
        help="Of a whitened_cnn: max shows the last layer the maximum of each "
        "channel; None: all pixels, which knows where things are.",
        part_option="keyword",
    )
    norm_epsilon: float | None = field(
        None,
        help="Added to the variance in norms; weights of other libraries belong to "
        "one.",
        part_option="keyword",
    )
    padding: Literal["symmetric", "same"] | None = field(
        None,
        help="Zeros around the images of convolutions with a stride: as many on all "
        "sides, or same, as in TensorFlow, which the weights that came from there "
        "need.",
        part_option="keyword",
    )
    output_stride: int | None = field(
        None,
        help="Of DeepLab and FCN, 8, 16 or 32: pixels of the image that become one in "
        "the last layer of the backbone, whose kernels are dilated in the place of "
        "further strides.",
        part_option="keyword",
    )
    aux_weight: float | None = field(
        None,
        help="Weight of the loss of each auxiliary head in training; 0: there are "
        "none.",
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
        help="Channels that a smaller model is left with, by the layers that make "
        "them first; {}: all.",
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
