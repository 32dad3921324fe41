"""The section `model`."""

from dataclasses import dataclass
from typing import Literal

from jaxtrain.config.base import Section


@dataclass(frozen=True, kw_only=True)
class ModelConfig(Section):
    """The network."""

    # lenet, convnet, cnn4, resnet18, resnet34, resnet50, resnet101 or resnet152.
    name: str = "convnet"
    # Factor on the number of channels of every layer.
    width: float | None = None
    # Probability of dropping a feature before the last layer.
    dropout: float | None = None
    # First layers of a ResNet: imagenet (7x7 stride 2, max pool) or cifar (3x3).
    stem: Literal["imagenet", "cifar"] | None = None

    def validate(self) -> None:
        self._positive("width")
        self._fraction("dropout")
