"""Projection head on top of the outputs, used only in self-supervised training.

The projection is from SimCLR (Chen et al. 2020, arXiv:2002.05709), where the last layer
of the model is the first layer of the projection MLP. The predictor is from BYOL (Grill
et al. 2020, arXiv:2006.07733).
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
from flax import nnx

from jaxtrain.models.layers import Layers

# Name of the projection head in a model.
PROJECTION = "projection"


@dataclass(frozen=True)
class Projection:
    """Options of a projection head.

    Attributes:
      size: Number of output features of the projection.
      predicts: Whether a predictor follows the projection.
    """

    size: int
    predicts: bool


class Projected(NamedTuple):
    """Training outputs of a model with a projection head.

    Attributes:
      outputs: Outputs of the model, (B, num_outputs).
      projection: Projections of the outputs, (B, size).
      prediction: Outputs of the predictor, (B, size). None without a predictor.
    """

    outputs: jax.Array
    projection: jax.Array
    prediction: jax.Array | None


class Perceptron(nnx.Module):
    """Batch norm, ReLU and the second dense layer of a two-layer MLP."""

    def __init__(self, hidden: int, features: int, *, layers: Layers):
        self.norm = layers.batch_norm(hidden)
        self.linear = layers.linear(hidden, features)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Map the outputs of the first dense layer, (B, hidden), to (B, features)."""
        return self.linear(self.norm(x, relu=True))


class ProjectionHead(nnx.Module):
    """Projection and optional predictor, each with `num_outputs` hidden features.

    The layers are replicated, although the `model` axis shards the outputs.
    """

    def __init__(self, num_outputs: int, projection: Projection, *, layers: Layers):
        size = projection.size
        self.project = Perceptron(num_outputs, size, layers=layers)
        self.predicts = projection.predicts
        if projection.predicts:
            self.widen = layers.linear(size, num_outputs)
            self.predict = Perceptron(num_outputs, size, layers=layers)
        # The model's methods `train()` and `eval()` set this attribute.
        self.deterministic = False

    def __call__(self, outputs: jax.Array) -> Projected:
        """Return outputs (B, num_outputs), with their projections and predictions."""
        projection, prediction = self.project(outputs), None
        if self.predicts:
            prediction = self.predict(self.widen(projection))
        return Projected(outputs, projection, prediction)


def add_projection(
    head: ProjectionHead, x: jax.Array, rngs: nnx.Rngs | None
) -> jax.Array | Projected:
    """Return the outputs; in training, with projections (last piece of a model)."""
    del rngs
    return x if head.deterministic else head(x)
