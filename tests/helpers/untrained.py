"""A model that has not been trained, whose numbers are none of a start."""

from typing import Any

import jax
import numpy as np

from jaxtrain.config import ModelConfig
from jaxtrain.inference.model import TrainedModel
from jaxtrain.weights.stored import abstract_weights
from tests.helpers.described import describe


def untrained(config: ModelConfig) -> TrainedModel:
    """Return a model with random weights: biases, norms and statistics, too."""
    about = describe(
        config, (34, 32, 3), num_outputs=10, mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.4)
    )
    rng = np.random.default_rng(0)

    def draw(path: Any, x: Any) -> np.ndarray:
        values = rng.normal(size=x.shape).astype(np.float32)
        if x.ndim > 1:
            return values / np.sqrt(np.prod(x.shape[:-1]) / 2)
        # Scales and variances near 1, biases and means near 0.
        near = 1 if path[-1].key in ("scale", "var") else 0
        return near + 0.1 * values

    params, state = jax.tree_util.tree_map_with_path(draw, abstract_weights(about))
    return TrainedModel(about, params, state, {})
