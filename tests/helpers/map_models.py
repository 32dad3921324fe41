"""Models of maps as shapes."""

import functools
from typing import Any

import jax

from jaxtrain.models.base import Model
from jaxtrain.models.blueprint import Blueprint
from jaxtrain.training.forward import predict
from jaxtrain.training.state import split_model
from tests.helpers.blueprints import make_blueprint
from tests.helpers.parts import model_config

CLASSES = 5


def blueprint(size: Any = 33, *, policy: str = "fp32", **options: Any) -> Blueprint:
    """Return what builds a model, by default a U-Net, for images of some pixels.

    Args:
      size: Height and width; of a number, the width is 2 more.
      policy: Precision.
      **options: Those of the model, and its name.
    """
    shape = size if isinstance(size, tuple) else (size, size + 2)
    return make_blueprint(
        model_config(**{"name": "unet", **options}), (*shape, 3), CLASSES, policy
    )


def outputs_of(made: Blueprint, model: Model) -> Any:
    """Return the shapes of what a model puts out for two images."""
    graphdef, *weights = split_model(model)
    return jax.eval_shape(
        functools.partial(predict, graphdef), *weights, made.images(2)
    )
