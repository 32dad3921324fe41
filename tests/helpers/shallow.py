"""Families of models at a depth that tests can afford, with every kind of block."""

from jaxtrain.config import ModelConfig
from jaxtrain.models.preact_resnet import PreActBottleneck, PreActResNet
from jaxtrain.models.regnet import RegNet
from jaxtrain.models.resnet import Bottleneck, ResNet
from jaxtrain.models.resnet_d import PoolingBottleneck, ResNetD
from jaxtrain.models.resnext import GroupedBottleneck
from jaxtrain.models.se_resnet import SEBasicBlock
from jaxtrain.models.wide_resnet import WideResNet


class ShortResNet(ResNet):
    block = Bottleneck
    depths = (1, 2, 1, 1)


class ShortResNetD(ResNetD):
    block = PoolingBottleneck
    depths = (2, 1)


class ShortSEResNet(ResNet):
    block = SEBasicBlock
    depths = (1, 1)


class ShortResNeXt(ResNet):
    block = GroupedBottleneck
    depths = (2, 1)


class ShortPreActResNet(PreActResNet):
    block = PreActBottleneck
    depths = (2, 1)


class ShortWideResNet(WideResNet):
    depth, widening = 10, 2


class ShortRegNet(RegNet):
    depth, w_0, w_a, w_m = 3, 16, 8.0, 2.0
    group_width = 8


# Name -> its config; each is built by `jaxtrain.models.build`, as a user's own is.
SHORT = {
    "resnet": ModelConfig(
        name="tests.helpers.shallow:ShortResNet",
        options={"width": 0.125, "stem": "cifar"},
    ),
    "resnet_d": ModelConfig(
        name="tests.helpers.shallow:ShortResNetD", options={"width": 0.125}
    ),
    "se_resnet": ModelConfig(
        name="tests.helpers.shallow:ShortSEResNet",
        options={"width": 0.125, "drop_path": 0.3},
    ),
    "resnext": ModelConfig(
        name="tests.helpers.shallow:ShortResNeXt", options={"width": 0.125}
    ),
    "preact_resnet": ModelConfig(
        name="tests.helpers.shallow:ShortPreActResNet", options={"width": 0.125}
    ),
    "wide_resnet": ModelConfig(
        name="tests.helpers.shallow:ShortWideResNet",
        options={"width": 0.25, "dropout": 0.3},
    ),
    "regnet": ModelConfig(
        name="tests.helpers.shallow:ShortRegNet",
        options={"width": 0.5},
    ),
}
# Name -> height and width in pixels that suffice for all its layers; default: 32.
SIZES: dict[str, int] = {}
