"""What is known of a model that no run has trained."""

from typing import Any

from jaxtrain.config import ModelConfig
from jaxtrain.weights.description import Description
from tests.helpers.parts import model_config


def describe(model: ModelConfig | str, shape: Any, **fields: Any) -> Description:
    """Return it of a classifier for images of the shape, with the fields given.

    As many outputs as class names, where no number of outputs is given.
    """
    names = fields.get("class_names") or fields.get("column_names") or ()
    usual = {
        "task": "classification",
        "precision": "fp32",
        "num_outputs": len(names),
        "class_names": None,
        "mean": (0.5,) * shape[2],
        "std": (0.5,) * shape[2],
        "crop_pct": 1.0,
        "interpolation": "bilinear",
    }
    config = model_config(model) if isinstance(model, str) else model
    return Description(model=config, image_shape=shape, **{**usual, **fields})
