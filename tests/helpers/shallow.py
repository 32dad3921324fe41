"""Families of models at a depth that tests can afford, with every kind of block."""

from jaxtrain.config import ModelConfig
from jaxtrain.models.resnet import Bottleneck, ResNet


class ShortResNet(ResNet):
    block = Bottleneck
    depths = (1, 2, 1, 1)


# Name -> its config; each is built by `jaxtrain.models.build`, as a user's own is.
SHORT = {
    "resnet": ModelConfig(
        name="tests.helpers.shallow:ShortResNet",
        options={"width": 0.125, "stem": "cifar"},
    ),
}
# Name -> height and width in pixels that suffice for all its layers; default: 32.
SIZES: dict[str, int] = {}
