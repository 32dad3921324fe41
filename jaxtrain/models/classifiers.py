"""Models of one row of outputs an image, by name: backbones of those of maps, too."""

from jaxtrain.models.base import Model
from jaxtrain.models.convnext import ConvNeXt
from jaxtrain.models.densenet import DenseNet
from jaxtrain.models.efficientnet import EfficientNet, EfficientNetV2S, scaled_stages
from jaxtrain.models.googlenet import GoogLeNet
from jaxtrain.models.inception_v3 import InceptionV3
from jaxtrain.models.mobilenet import MobileNetV2, MobileNetV3Large, MobileNetV3Small
from jaxtrain.models.preact_resnet import (
    PreActBasicBlock,
    PreActBottleneck,
    PreActResNet,
    WideResNet,
)
from jaxtrain.models.regnet import RegNet
from jaxtrain.models.residual import (
    BasicBlock,
    Bottleneck,
    GroupedBottleneck,
    PoolingBasicBlock,
    PoolingBottleneck,
    SEBasicBlock,
    SEBottleneck,
    WideBottleneck,
)
from jaxtrain.models.resnet import ResNet, ResNetD
from jaxtrain.models.small import CNN4, ConvNet, LeNet
from jaxtrain.models.vgg import VGG
from jaxtrain.models.whitened_cnn import WhitenedCNN

_REGNET_Y_8GF = {"depth": 17, "w_0": 192, "w_a": 76.82, "w_m": 2.19, "group_width": 56}

CLASSIFIERS: dict[str, type[Model]] = {
    "lenet": LeNet,
    "convnet": ConvNet,
    "cnn4": CNN4,
    "resnet18": ResNet.variant(block=BasicBlock, depths=(2, 2, 2, 2)),
    "resnet34": ResNet.variant(block=BasicBlock, depths=(3, 4, 6, 3)),
    "resnet50": ResNet.variant(block=Bottleneck, depths=(3, 4, 6, 3)),
    "resnet101": ResNet.variant(block=Bottleneck, depths=(3, 4, 23, 3)),
    "resnet152": ResNet.variant(block=Bottleneck, depths=(3, 8, 36, 3)),
    "resnet18d": ResNetD.variant(block=PoolingBasicBlock, depths=(2, 2, 2, 2)),
    "resnet50d": ResNetD.variant(block=PoolingBottleneck, depths=(3, 4, 6, 3)),
    "seresnet18": ResNet.variant(block=SEBasicBlock, depths=(2, 2, 2, 2)),
    "seresnet50": ResNet.variant(block=SEBottleneck, depths=(3, 4, 6, 3)),
    "wide_resnet50_2": ResNet.variant(block=WideBottleneck, depths=(3, 4, 6, 3)),
    "resnext50_32x4d": ResNet.variant(block=GroupedBottleneck, depths=(3, 4, 6, 3)),
    "preact_resnet18": PreActResNet.variant(
        block=PreActBasicBlock, depths=(2, 2, 2, 2)
    ),
    "preact_resnet50": PreActResNet.variant(
        block=PreActBottleneck, depths=(3, 4, 6, 3)
    ),
    "wide_resnet28_10": WideResNet.variant(depth=28, widening=10),
    "regnet_y_3_2gf": RegNet.variant(
        depth=21, w_0=80, w_a=42.63, w_m=2.66, group_width=24
    ),
    "regnet_y_4gf": RegNet.variant(
        depth=22, w_0=96, w_a=31.41, w_m=2.24, group_width=64
    ),
    # As torchvision has it, which rounds 192 channels of the first stage to 224; and as
    # in the paper, and in timm as regnety_080, which round them to 168.
    "regnet_y_8gf": RegNet.variant(**_REGNET_Y_8GF, max_loss=0.1),
    "regnet_y_8gf_paper": RegNet.variant(**_REGNET_Y_8GF),
    "vgg11": VGG.variant(depths=(1, 1, 2, 2, 2)),
    "vgg11_bn": VGG.variant(depths=(1, 1, 2, 2, 2), batch_norm=True),
    "vgg13": VGG.variant(depths=(2, 2, 2, 2, 2)),
    "vgg13_bn": VGG.variant(depths=(2, 2, 2, 2, 2), batch_norm=True),
    "vgg16": VGG.variant(depths=(2, 2, 3, 3, 3)),
    "vgg16_bn": VGG.variant(depths=(2, 2, 3, 3, 3), batch_norm=True),
    "vgg19": VGG.variant(depths=(2, 2, 4, 4, 4)),
    "vgg19_bn": VGG.variant(depths=(2, 2, 4, 4, 4), batch_norm=True),
    "googlenet": GoogLeNet,
    "inception_v3": InceptionV3,
    "densenet121": DenseNet.variant(depths=(6, 12, 24, 16)),
    "mobilenet_v2": MobileNetV2,
    "mobilenet_v3_small": MobileNetV3Small,
    "mobilenet_v3_large": MobileNetV3Large,
    "efficientnet_b0": EfficientNet.variant(stages=scaled_stages(1.0)),
    "efficientnet_b1": EfficientNet.variant(stages=scaled_stages(1.1)),
    "efficientnet_b2": EfficientNet.variant(
        width_factor=1.1, stages=scaled_stages(1.2), base_dropout=0.3
    ),
    "efficientnet_b3": EfficientNet.variant(
        width_factor=1.2, stages=scaled_stages(1.4), base_dropout=0.3
    ),
    "efficientnet_b4": EfficientNet.variant(
        width_factor=1.4, stages=scaled_stages(1.8), base_dropout=0.4
    ),
    "efficientnet_v2_s": EfficientNetV2S,
    "convnext_tiny": ConvNeXt.variant(depths=(3, 3, 9, 3), base_drop_path=0.1),
    "convnext_small": ConvNeXt.variant(depths=(3, 3, 27, 3), base_drop_path=0.4),
    "convnext_base": ConvNeXt.variant(
        channels=(128, 256, 512, 1024), depths=(3, 3, 27, 3), base_drop_path=0.5
    ),
    "whitened_cnn": WhitenedCNN,
    "whitened_cnn_small": WhitenedCNN.variant(
        min_size=8, patch_stride=2, channels=(32, 64)
    ),
}
