"""What a model of the tests is built from."""

from typing import Any

from jaxtrain.config import ModelConfig
from jaxtrain.models.blueprint import Blueprint
from jaxtrain.training import precision
from tests.helpers.parts import model_config


def make_blueprint(
    model: ModelConfig | str,
    shape: Any,
    num_outputs: int,
    policy: str = "fp32",
    **fields: Any,
) -> Blueprint:
    config = model_config(model) if isinstance(model, str) else model
    given = {"image_shape": shape, "num_outputs": num_outputs, **fields}
    return Blueprint(config=config, policy=precision.parse(policy), **given)
