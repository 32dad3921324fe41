"""Models by name; each is an nnx.Module that knows of no config and no mesh."""

import inspect
from typing import Any

from jaxtrain.models.base import Model
from jaxtrain.models.classifiers import CLASSIFIERS
from jaxtrain.models.fcos import FCOS

MODELS: dict[str, type[Model]] = {**CLASSIFIERS, "fcos": FCOS}

# Of the section `model`, what is no option of a model.
NO_OPTIONS = ("name", "pretrained", "pretrained_digest", "options", "transform")
# What every constructor takes (see `Model`).
FIXED = ("self", "image_shape", "num_outputs", "layers", "output_spec")


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
