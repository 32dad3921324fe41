"""The section `model`."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from jaxtrain.config.base import Options, Section
from jaxtrain.config.names import row_of


@dataclass(frozen=True, kw_only=True)
class ModelConfig(Section):
    """The network."""

    # The model, or one of your own: path/to/file.py:name or package.module:name.
    name: Annotated[str, row_of("jaxtrain.models:MODELS")] = "convnet"
    # Folder of a run, or of a model exported as safetensors, whose weights the run
    # begins with; None: random ones. The last layer may have other outputs.
    pretrained: str | None = None
    # Factor on the number of channels of every layer.
    width: float | None = None
    # Probability of dropping a feature before the last layer.
    dropout: float | None = None
    # First layers of a ResNet: imagenet (7x7 stride 2, max pool) or cifar (3x3).
    stem: Literal["imagenet", "cifar"] | None = None

    # Of a model of your own: what its constructor takes.
    options: Options = field(default_factory=dict)

    def validate(self) -> None:
        self._positive("width")
        self._fraction("dropout")
