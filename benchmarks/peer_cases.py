"""The models that are trained by us and by PyTorch, and the batches."""

from pathlib import Path
from typing import Any, NamedTuple

from jaxtrain.config import (
    ConvNetConfig,
    CustomModelConfig,
    LeNetConfig,
    ModelConfig,
    ResNetConfig,
    WhitenedCNNConfig,
)
from jaxtrain.weights.names import USUAL, TorchLayout, after_flatten

BLOCKS = Path(__file__).resolve().parent / "blocks.py"


class Case(NamedTuple):
    """A model to train.

    Attributes:
      model: Our section `model`.
      peer: Name and arguments of the peer's.
      cpu: Shape of the images and examples of a batch, on CPU.
      gpu: The same on a GPU.
      flat: Layer that takes a flattened image, and the rows of that image.
    """

    model: ModelConfig
    peer: tuple[str, dict[str, Any]]
    cpu: tuple[tuple[int, int, int], int]
    gpu: tuple[tuple[int, int, int], int]
    flat: tuple[str, int] | None = None


def resnet(stem: str | None, depths: list[int], bottleneck: bool) -> Any:
    return "resnet", {"stem": stem, "depths": depths, "bottleneck": bottleneck}


GREY, COLOUR, PHOTO = (28, 28, 1), (32, 32, 3), (224, 224, 3)
STAGE, BLOCK = (56, 56, 64), (28, 28, 32)
CASES = {
    "lenet": Case(
        LeNetConfig(),
        ("lenet", {}),
        (GREY, 128),
        (GREY, 1024),
        ("linear1", 5),
    ),
    "convnet": Case(
        ConvNetConfig(name="convnet"),
        ("convnet", {}),
        (GREY, 128),
        (GREY, 1024),
        ("head/linear", 7),
    ),
    "whitened_cnn_small": Case(
        WhitenedCNNConfig(name="whitened_cnn_small"),
        ("whitened_cnn", {"channels": [32, 64]}),
        (GREY, 240),
        (GREY, 2000),
        ("head/linear", 3),
    ),
    "resnet18": Case(
        ResNetConfig(name="resnet18", stem="cifar"),
        resnet("cifar", [2, 2, 2, 2], False),
        (COLOUR, 64),
        (COLOUR, 512),
    ),
    "resnet50": Case(
        ResNetConfig(name="resnet50"),
        resnet("imagenet", [3, 4, 6, 3], True),
        ((64, 64, 3), 32),
        (PHOTO, 128),
    ),
    "bottleneck_stage": Case(
        CustomModelConfig(name=f"{BLOCKS}:BottleneckStage"),
        resnet(None, [3], True),
        (STAGE, 8),
        (STAGE, 128),
    ),
    "mobilenet_v2_blocks": Case(
        CustomModelConfig(name=f"{BLOCKS}:InvertedResiduals"),
        ("inverted_residuals", {}),
        (BLOCK, 32),
        (BLOCK, 256),
    ),
}


def layout_of(layer: str, leaf: str, case: Case) -> TorchLayout:
    if case.flat is not None and (layer, leaf) == (case.flat[0], "kernel"):
        return after_flatten(case.flat[1])
    return USUAL
