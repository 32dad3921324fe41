"""Models by name; each is an nnx.Module that knows of no config and no mesh."""

import inspect
from typing import Any

from jaxtrain.models.base import Model
from jaxtrain.models.classifiers import CLASSIFIERS
from jaxtrain.models.deeplab import FCN, DeepLabV3
from jaxtrain.models.fcos import FCOS
from jaxtrain.models.unet import UNet

# Those of maps and of boxes begin with a classifier.
MODELS: dict[str, type[Model]] = {
    **CLASSIFIERS,
    "unet": UNet,
    "deeplabv3_resnet50": DeepLabV3,
    "deeplabv3_resnet101": DeepLabV3.variant(base_backbone="resnet101"),
    "fcn_resnet50": FCN,
    "fcn_resnet101": FCN.variant(base_backbone="resnet101"),
    "fcos": FCOS,
}

# Of the section `model`, what is no option of a model.
NO_OPTIONS = (
    *("name", "pretrained", "pretrained_digest", "options"),
    *("channels", "transform", "quantize"),
)
# What every constructor takes (see `Model`), and what models of maps alone ask of a
# classifier.
FIXED = ("self", "image_shape", "num_outputs", "layers", "output_spec", "max_stride")


def defaults(model: type[Model]) -> dict[str, Any]:
    """Return the options that a model takes, with the default of each.

    One that depends on the size of the model is None in the constructor, and the class
    has it as `base_NAME`.
    """
    # Of __init__, as the signature of an nnx.Module itself is (*args, **kwargs).
    parameters = inspect.signature(model.__init__).parameters
    return {
        name: getattr(model, f"base_{name}", None) if p.default is None else p.default
        for name, p in parameters.items()
        if name not in FIXED
    }
