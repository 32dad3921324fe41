"""Teachers with random weights: in folders as `export` writes them, and of PyTorch."""

import math
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxtrain.config import ConvNetConfig
from jaxtrain.inference import folder
from jaxtrain.inference.model import make_model
from jaxtrain.weights.description import Description
from jaxtrain.weights.stored import abstract_weights

# A small teacher of grey images, with what tests change.
TEACHER: dict[str, Any] = {
    "task": "classification",
    "model": ConvNetConfig(name="convnet", width=0.125),
    "precision": "fp32",
    "image_shape": (8, 8, 1),
    "num_outputs": 4,
    "class_names": ("0", "1", "2", "3"),
    "mean": (0.4,),
    "std": (0.3,),
    "crop_pct": 1.0,
    "interpolation": "bilinear",
}


def describe(**changes: Any) -> Description:
    return Description(**{**TEACHER, **changes})


def weights(about: Description, seed: int = 0) -> tuple[Any, Any]:
    """Return random parameters and other state; variances and scales are positive."""
    rng = np.random.default_rng(seed)

    def draw(path: Any, x: Any) -> np.ndarray:
        name, values = path[-1].key, rng.standard_normal(x.shape)
        if name in ("scale", "var"):
            values = 1 + 0.5 * np.tanh(values)
        elif name == "kernel":
            values *= 2 / math.sqrt(math.prod(x.shape[:-1]))
        return values.astype(x.dtype)

    return jax.tree_util.tree_map_with_path(draw, abstract_weights(about))


def write_teacher(place: Path, seed: int = 0, **changes: Any) -> Path:
    """Write a teacher into a new folder."""
    about = describe(**changes)
    params, model_state = weights(about, seed)
    origin = {"step": None, "run": None, "weights": ""}
    folder.write(make_model(about, params, model_state, origin, str(place)), place)
    return place
