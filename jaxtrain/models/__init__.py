"""Models by name; each is an nnx.Module that knows of no config and no mesh."""

import dataclasses
import inspect
from typing import Any

import jmp
from flax import nnx

from jaxtrain import own
from jaxtrain.config import ModelConfig
from jaxtrain.errors import UserError
from jaxtrain.models.base import Model
from jaxtrain.models.cnn4 import CNN4
from jaxtrain.models.convnet import ConvNet
from jaxtrain.models.convnext import ConvNeXtBase, ConvNeXtSmall, ConvNeXtTiny
from jaxtrain.models.densenet import DenseNet121
from jaxtrain.models.efficientnet import (
    EfficientNetB0,
    EfficientNetB1,
    EfficientNetB2,
    EfficientNetB3,
    EfficientNetB4,
)
from jaxtrain.models.efficientnet_v2 import EfficientNetV2S
from jaxtrain.models.googlenet import GoogLeNet
from jaxtrain.models.inception_v3 import InceptionV3
from jaxtrain.models.layers import Layers
from jaxtrain.models.lenet import LeNet
from jaxtrain.models.mobilenet_v2 import MobileNetV2
from jaxtrain.models.mobilenet_v3 import MobileNetV3Large, MobileNetV3Small
from jaxtrain.models.preact_resnet import PreActResNet18, PreActResNet50
from jaxtrain.models.regnet import RegNetY3_2GF, RegNetY4GF, RegNetY8GF, RegNetY8GFPaper
from jaxtrain.models.resnet import ResNet18, ResNet34, ResNet50, ResNet101, ResNet152
from jaxtrain.models.resnet_d import ResNet18D, ResNet50D
from jaxtrain.models.resnext import ResNeXt50x32x4d, WideResNet50x2
from jaxtrain.models.se_resnet import SEResNet18, SEResNet50
from jaxtrain.models.vgg import (
    VGG11,
    VGG13,
    VGG16,
    VGG19,
    VGG11BatchNorm,
    VGG13BatchNorm,
    VGG16BatchNorm,
    VGG19BatchNorm,
)
from jaxtrain.models.wide_resnet import WideResNet28x10
from jaxtrain.registry import check_no_options, find_row, given_options

MODELS: dict[str, type[Model]] = {
    "lenet": LeNet,
    "convnet": ConvNet,
    "cnn4": CNN4,
    "resnet18": ResNet18,
    "resnet34": ResNet34,
    "resnet50": ResNet50,
    "resnet101": ResNet101,
    "resnet152": ResNet152,
    "resnet18d": ResNet18D,
    "resnet50d": ResNet50D,
    "seresnet18": SEResNet18,
    "seresnet50": SEResNet50,
    "wide_resnet50_2": WideResNet50x2,
    "resnext50_32x4d": ResNeXt50x32x4d,
    "preact_resnet18": PreActResNet18,
    "preact_resnet50": PreActResNet50,
    "wide_resnet28_10": WideResNet28x10,
    "regnet_y_3_2gf": RegNetY3_2GF,
    "regnet_y_4gf": RegNetY4GF,
    "regnet_y_8gf": RegNetY8GF,
    "regnet_y_8gf_paper": RegNetY8GFPaper,
    "vgg11": VGG11,
    "vgg11_bn": VGG11BatchNorm,
    "vgg13": VGG13,
    "vgg13_bn": VGG13BatchNorm,
    "vgg16": VGG16,
    "vgg16_bn": VGG16BatchNorm,
    "vgg19": VGG19,
    "vgg19_bn": VGG19BatchNorm,
    "googlenet": GoogLeNet,
    "inception_v3": InceptionV3,
    "densenet121": DenseNet121,
    "mobilenet_v2": MobileNetV2,
    "mobilenet_v3_small": MobileNetV3Small,
    "mobilenet_v3_large": MobileNetV3Large,
    "efficientnet_b0": EfficientNetB0,
    "efficientnet_b1": EfficientNetB1,
    "efficientnet_b2": EfficientNetB2,
    "efficientnet_b3": EfficientNetB3,
    "efficientnet_b4": EfficientNetB4,
    "efficientnet_v2_s": EfficientNetV2S,
    "convnext_tiny": ConvNeXtTiny,
    "convnext_small": ConvNeXtSmall,
    "convnext_base": ConvNeXtBase,
}

# Of the section `model`, what is no option of a model.
NO_OPTIONS = ("name", "pretrained", "pretrained_digest", "options", "transform")
# What every constructor takes (see `Model`).
FIXED = ("self", "image_shape", "num_outputs", "layers")


def build(
    config: ModelConfig,
    *,
    image_shape: tuple[int, int, int],
    num_outputs: int,
    policy: jmp.Policy,
    rngs: nnx.Rngs,
    norm_groups: int = 1,
) -> Model:
    """Build the model that `config` names, with the options that it sets.

    Args:
      config: name and options; an option that is None has the model's own default.
      image_shape: height, width and channels.
      num_outputs: numbers that it puts out for an image.
      policy: dtypes of parameters, activations and outputs.
      rngs: source of the initial weights (stream `params`).
      norm_groups: parts of a training batch that batch norm takes by themselves.

    Raises:
      UserError: the name is not known, an option has no effect on the model, or the
        model does not take images of this shape.
    """
    name = config.name
    model = find_row(MODELS, "model.name", name)
    if not (inspect.isclass(model) and issubclass(model, Model)):
        raise UserError(
            f"model.name = {name!r} is {model!r}, expected a subclass of "
            "jaxtrain.models.base.Model; see docs/extending.md"
        )
    options = _options(config, model)
    _check_image_shape(image_shape, name, model.min_size)
    layers = Layers(policy=policy, rngs=rngs, norm_groups=norm_groups)
    made = model(image_shape, num_outputs, layers=layers, **options)
    _check_attributes(made)
    _check_image_shape(image_shape, name, made.min_size)
    return made


def defaults(model: type[Model]) -> dict[str, Any]:
    """Return the options that a model takes, with the default of each."""
    # Of __init__, as the signature of an nnx.Module itself is (*args, **kwargs).
    parameters = inspect.signature(model.__init__).parameters
    return {name: p.default for name, p in parameters.items() if name not in FIXED}


def _options(config: ModelConfig, model: type[Model]) -> dict[str, object]:
    """Return the options that are set, all of which the model's constructor takes."""
    names, known = [f.name for f in dataclasses.fields(config)], defaults(model)
    options = [n for n in names if n not in NO_OPTIONS]
    takes = [option for option in options if option in known]
    given = given_options(config, "model", options, config.name, takes)
    if not own.is_own(config.name):
        check_no_options("model", config.name, config.options)
        return given
    for option in config.options:
        if option not in known or option in given:
            free = [name for name in known if name not in given]
            raise UserError(
                f"model.options: {config.name} takes {', '.join(free) or 'none'}, not "
                f"{option!r}"
            )
    return {**given, **config.options}


def _check_attributes(model: Model) -> None:
    """Raise UserError if a layer hides a method, such as `train`."""
    for name, layer in vars(model).items():
        if isinstance(layer, nnx.Module) and hasattr(type(model), name):
            raise UserError(
                f"model {type(model).__name__}: the layer {name!r} hides what every "
                "model has by that name: give the layer a name of its own, in add_piece"
            )


def _check_image_shape(image_shape: tuple[int, int, int], name: str, size: int) -> None:
    if len(image_shape) != 3 or min(image_shape) < 1 or min(image_shape[:2]) < size:
        raise UserError(
            f"image shape {image_shape}: {name} takes (height, width, channels) from "
            f"{size}x{size} pixels up; set data.image_size or another model.name"
        )
