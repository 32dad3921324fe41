"""Families of models at a depth that tests can afford, with every kind of block."""

from typing import ClassVar

from jaxtrain import own
from jaxtrain.config import CustomModelConfig
from jaxtrain.models import googlenet, inception_v3
from jaxtrain.models.activations import hard_swish, silu
from jaxtrain.models.convnext import ConvNeXt
from jaxtrain.models.densenet import DenseNet
from jaxtrain.models.efficientnet import SQUEEZE as SILU_SQUEEZE, EfficientNetV2S
from jaxtrain.models.inverted_residual import InvertedStage
from jaxtrain.models.mobilenet import SQUEEZE as HARD_SQUEEZE, MobileNetV3
from jaxtrain.models.preact_resnet import PreActBottleneck, PreActResNet, WideResNet
from jaxtrain.models.regnet import RegNet
from jaxtrain.models.residual import (
    BasicBlock,
    Bottleneck,
    GroupedBottleneck,
    PoolingBottleneck,
    SEBasicBlock,
)
from jaxtrain.models.resnet import ResNet, ResNetD
from jaxtrain.models.vgg import VGG


class ShortResNet(ResNet):
    block = Bottleneck
    depths = (1, 2)


class ShortBasicResNet(ResNet):
    block = BasicBlock
    depths = (1, 1)


class EvenResNet(ResNet):
    """Four blocks, for as many pipeline stages."""

    block = BasicBlock
    depths = (1, 1, 1, 1)


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


class ShortVGG(VGG):
    # Without batch norm: before one, the gradient of a bias is that of rounding.
    depths = (1, 1, 1, 1, 1)


class ShortGoogLeNet(googlenet.GoogLeNet):
    # Those that a pool follows.
    blocks: ClassVar = {name: googlenet.BLOCKS[name] for name in googlenet.POOLS}
    with_head: ClassVar = {"inception3b": "aux1", "inception4e": "aux2"}


class ShortInceptionV3(inception_v3.InceptionV3):
    blocks: ClassVar = {
        name: inception_v3.InceptionV3.blocks[name]
        # Strided beside a max pool; forks beside a mean pool.
        for name in ("mixed_6a", "mixed_7b")
    }
    with_head: ClassVar = {"mixed_6a": "aux"}


class ShortDenseNet(DenseNet):
    depths = (2, 1)


class ShortMobileNetV3(MobileNetV3):
    last_channels, features = 96, 128
    stages = (
        InvertedStage(channels=16, expansions=(1,), activation=hard_swish),
        InvertedStage(
            channels=24,
            expansions=(3, 2.3),
            stride=2,
            size=5,
            activation=hard_swish,
            squeeze=HARD_SQUEEZE,
        ),
    )


class ShortEfficientNet(EfficientNetV2S):
    stages = (
        InvertedStage(channels=24, expansions=(1,), activation=silu, fused=True),
        InvertedStage(
            channels=48, expansions=(2,), stride=2, activation=silu, fused=True
        ),
        InvertedStage(
            channels=64,
            expansions=(2, 2),
            stride=2,
            activation=silu,
            squeeze=SILU_SQUEEZE,
        ),
    )


class ShortConvNeXt(ConvNeXt):
    channels, depths, base_drop_path = (96, 192), (1, 2), 0.2


# Name -> its config; each is built by `Blueprint.build`, as a user's own is.
SHORT = {
    "resnet": CustomModelConfig(
        name="tests.helpers.shallow:ShortResNet",
        options={"width": 0.125, "stem": "cifar"},
    ),
    "resnet_d": CustomModelConfig(
        name="tests.helpers.shallow:ShortResNetD", options={"width": 0.125}
    ),
    "se_resnet": CustomModelConfig(
        name="tests.helpers.shallow:ShortSEResNet",
        options={"width": 0.125, "drop_path": 0.3},
    ),
    "resnext": CustomModelConfig(
        name="tests.helpers.shallow:ShortResNeXt", options={"width": 0.125}
    ),
    "preact_resnet": CustomModelConfig(
        name="tests.helpers.shallow:ShortPreActResNet", options={"width": 0.125}
    ),
    "wide_resnet": CustomModelConfig(
        name="tests.helpers.shallow:ShortWideResNet",
        options={"width": 0.25, "dropout": 0.3},
    ),
    "regnet": CustomModelConfig(
        name="tests.helpers.shallow:ShortRegNet",
        options={"width": 0.5},
    ),
    "vgg": CustomModelConfig(
        name="tests.helpers.shallow:ShortVGG",
        options={"width": 0.03125, "dropout": 0.1},
    ),
    "googlenet": CustomModelConfig(
        name="tests.helpers.shallow:ShortGoogLeNet", options={"width": 0.125}
    ),
    "inception_v3": CustomModelConfig(
        name="tests.helpers.shallow:ShortInceptionV3", options={"width": 0.0625}
    ),
    "densenet": CustomModelConfig(
        name="tests.helpers.shallow:ShortDenseNet", options={"width": 0.125}
    ),
    "mobilenet": CustomModelConfig(
        name="tests.helpers.shallow:ShortMobileNetV3",
        options={"width": 0.5, "drop_path": 0.5, "padding": "same"},
    ),
    "efficientnet": CustomModelConfig(
        name="tests.helpers.shallow:ShortEfficientNet", options={"width": 0.125}
    ),
    "convnext": CustomModelConfig(
        name="tests.helpers.shallow:ShortConvNeXt", options={"width": 0.125}
    ),
}
# For what compiles many programs of one model.
BASIC = CustomModelConfig(
    name="tests.helpers.shallow:ShortBasicResNet",
    options={"width": 0.125, "stem": "cifar"},
)
own.allow(config.name for config in (*SHORT.values(), BASIC))
# Name -> height and width in pixels that suffice for all its layers; default: 32.
SIZES: dict[str, int] = {
    "vgg": 64,
    "googlenet": 64,
    "inception_v3": 128,
}
# Name -> paths of parameters that change nothing of what is computed in training, so
# that their gradients are 0 but for rounding: a number added to a channel, where only
# 1x1 convolutions with batch norms follow. (Stochastic depth leaves it out of some of
# the images: then it counts.)
SHIFTS: dict[str, set[str]] = {
    "mobilenet": {
        f"0/{block}/project/norm/bias" for block in ("stage1_block1", "stage2_block1")
    },
    "efficientnet": {
        f"0/{block}/project/norm/bias" for block in ("stage2_block1", "stage3_block1")
    },
}
