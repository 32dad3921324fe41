"""Tables of models. Models are `nnx.Module`s that depend on neither config nor mesh."""

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from jaxtrain.config.metadata import with_metadata
from jaxtrain.config.model import ModelConfig
from jaxtrain.plugin import Table

if TYPE_CHECKING:
    from flax import nnx
    from jax.sharding import Mesh

    from jaxtrain.models.base import Model

# Models with one output vector per image, which can be backbones of other models.
CLASSIFIERS: "Table[type[Model]]" = Table(
    "classifiers",
    {
        "lenet": "jaxtrain.models.small:LeNet",
        "convnet": "jaxtrain.models.small:ConvNet",
        "cnn4": "jaxtrain.models.small:CNN4",
        "resnet18": "jaxtrain.models.resnet:ResNet18",
        "resnet34": "jaxtrain.models.resnet:ResNet34",
        "resnet50": "jaxtrain.models.resnet:ResNet50",
        "resnet101": "jaxtrain.models.resnet:ResNet101",
        "resnet152": "jaxtrain.models.resnet:ResNet152",
        "resnet18d": "jaxtrain.models.resnet:ResNet18D",
        "resnet50d": "jaxtrain.models.resnet:ResNet50D",
        "seresnet18": "jaxtrain.models.resnet:SEResNet18",
        "seresnet50": "jaxtrain.models.resnet:SEResNet50",
        "wide_resnet50_2": "jaxtrain.models.resnet:WideResNet50x2",
        "resnext50_32x4d": "jaxtrain.models.resnet:ResNeXt50",
        "preact_resnet18": "jaxtrain.models.preact_resnet:PreActResNet18",
        "preact_resnet50": "jaxtrain.models.preact_resnet:PreActResNet50",
        "wide_resnet28_10": "jaxtrain.models.preact_resnet:WideResNet28x10",
        "regnet_y_3_2gf": "jaxtrain.models.regnet:RegNetY3GF",
        "regnet_y_4gf": "jaxtrain.models.regnet:RegNetY4GF",
        "regnet_y_8gf": "jaxtrain.models.regnet:RegNetY8GF",
        "regnet_y_8gf_paper": "jaxtrain.models.regnet:RegNetY8GFPaper",
        "vgg11": "jaxtrain.models.vgg:VGG11",
        "vgg11_bn": "jaxtrain.models.vgg:VGG11BN",
        "vgg13": "jaxtrain.models.vgg:VGG13",
        "vgg13_bn": "jaxtrain.models.vgg:VGG13BN",
        "vgg16": "jaxtrain.models.vgg:VGG16",
        "vgg16_bn": "jaxtrain.models.vgg:VGG16BN",
        "vgg19": "jaxtrain.models.vgg:VGG19",
        "vgg19_bn": "jaxtrain.models.vgg:VGG19BN",
        "googlenet": "jaxtrain.models.googlenet:GoogLeNet",
        "inception_v3": "jaxtrain.models.inception_v3:InceptionV3",
        "densenet121": "jaxtrain.models.densenet:DenseNet121",
        "mobilenet_v2": "jaxtrain.models.mobilenet:MobileNetV2",
        "mobilenet_v3_small": "jaxtrain.models.mobilenet:MobileNetV3Small",
        "mobilenet_v3_large": "jaxtrain.models.mobilenet:MobileNetV3Large",
        "efficientnet_b0": "jaxtrain.models.efficientnet:EfficientNetB0",
        "efficientnet_b1": "jaxtrain.models.efficientnet:EfficientNetB1",
        "efficientnet_b2": "jaxtrain.models.efficientnet:EfficientNetB2",
        "efficientnet_b3": "jaxtrain.models.efficientnet:EfficientNetB3",
        "efficientnet_b4": "jaxtrain.models.efficientnet:EfficientNetB4",
        "efficientnet_v2_s": "jaxtrain.models.efficientnet:EfficientNetV2S",
        "convnext_tiny": "jaxtrain.models.convnext:ConvNeXtTiny",
        "convnext_small": "jaxtrain.models.convnext:ConvNeXtSmall",
        "convnext_base": "jaxtrain.models.convnext:ConvNeXtBase",
        "whitened_cnn": "jaxtrain.models.whitened_cnn:WhitenedCNN",
        "whitened_cnn_small": "jaxtrain.models.whitened_cnn:WhitenedCNNSmall",
    },
)
# All models: the classifiers, and models of plug-ins, such as for segmentation.
MODELS: "Table[type[Model]]" = Table(("classifiers", "models"), CLASSIFIERS.core)
# Platform, such as "cpu" -> function (model, mesh) that replaces the `jax.lax`
# convolutions in a model on a data-parallel mesh.
CONVOLUTIONS: "Table[Callable[[nnx.Module, Mesh], None]]" = Table("convolutions", {})

# Constructor arguments that are not options. First line: arguments of `Model`, and
# `max_stride` of backbones. Other lines: arguments of plain Flax modules.
FIXED = (
    *("self", "image_shape", "num_outputs", "layers", "output_spec", "max_stride"),
    *("num_classes", "in_channels", "in_features", "rngs", "dtype", "param_dtype"),
    *("parent", "name"),
)


def defaults(model: "type[Model]") -> dict[str, Any]:
    """Names and default values of a model's options.

    If the default of an option depends on the size of the model, the constructor's
    default is None, and the class attribute `base_OPTION` holds the actual default.
    """
    # The signature of an nnx.Module class is (*args, **kwargs): use its constructor's.
    parameters = inspect.signature(model.constructor()).parameters
    return {
        name: getattr(model, f"base_{name}", None) if p.default is None else p.default
        for name, p in parameters.items()
        if name not in FIXED and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    }


def lasting_options(config: ModelConfig) -> dict[str, Any]:
    """Values of a model's options, given or default, except training-only options."""
    given, in_training = config.arguments(), with_metadata(config, "in_training")
    return {
        option: default if given.get(option) is None else given[option]
        for option, default in defaults(MODELS[config.name]).items()
        if option not in in_training
    }
