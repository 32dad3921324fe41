"""The part `model`: fields of all models."""

from dataclasses import dataclass
from typing import Any, Literal

from jaxtrain import own
from jaxtrain.config.combinations import Incompatible, Needs, check, option
from jaxtrain.config.metadata import field
from jaxtrain.config.part import CustomConfig, Part, PartTable

QUANTIZE = option("model", "quantize")
COMBINATIONS = (
    Needs(option("model", "pretrained_digest"), option("model", "pretrained")),
    Incompatible(
        QUANTIZE,
        option("model", "transform"),
        "a custom function may compute with unquantized weights",
        "leave one of the two options out",
    ),
    Incompatible(
        QUANTIZE,
        option("train", "freeze"),
        "the quantization ranges of frozen layers are never calibrated",
        "leave train.freeze out, or use train.fine_tune, which trains all layers later",
    ),
)


@dataclass(frozen=True, kw_only=True)
class ModelConfig(Part, base=True):
    """A model; subclasses declare the options of a family of models."""

    shown = "an instance, such as ResNetConfig(), or a name"
    name: str = field("", init=False)
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
    channels: dict[str, int] = field(
        default_factory=dict,
        help="Compacted model: numbers of remaining channels; each key is the path of "
        "the first layer that outputs the channels. {}: not compacted.",
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

    def set_options(self) -> dict[str, Any]:
        """Return the options that are not None, by name."""
        return {name: x for name, x in self.arguments().items() if x is not None}

    def validate(self) -> None:
        self._all(["transform"], own.is_own, own.FORMS)
        self._digest("pretrained_digest")
        self._all(
            ["channels"],
            lambda channels: all(number > 0 for number in channels.values()),
            "numbers of channels above 0",
        )
        check(self, COMBINATIONS, "model")


@dataclass(frozen=True, kw_only=True)
class CustomModelConfig(CustomConfig, ModelConfig):
    """A Flax module (NNX or Linen), or a plug-in's model without declared options."""


MODELS = PartTable("jaxtrain.models:MODELS", CustomModelConfig)
