"""Class centres: a layer on top of the outputs, used only in training."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from jaxtrain.dtypes import widen
from jaxtrain.models.layers import Layers
from jaxtrain.models.named import NamedLayer, in_own_scope

# Name of the class-centres layer.
CENTRES = "class_centres"
# Smallest squared norm to divide by, so that zero vectors stay zero.
MIN_SQUARED_NORM = 1e-24


def unit(x: jax.Array, axis: int = -1) -> jax.Array:
    """Normalize vectors along an axis to unit length."""
    squares = jnp.sum(jnp.square(x), axis, keepdims=True)
    return x * jax.lax.rsqrt(jnp.maximum(squares, MIN_SQUARED_NORM))


class WithCosines(NamedTuple):
    """Outputs of a model with class centres in training.

    Attributes:
      outputs: Outputs of the model, (B, num_outputs).
      cosines: Cosine similarities of the outputs and the class centres, (B,
        classes), in at least float32.
    """

    outputs: jax.Array
    cosines: jax.Array


class ClassCentres(NamedLayer):
    """One direction per class, compared with the outputs by cosine similarity.

    This layer is replicated over the `model` axis, which shards the outputs.
    """

    def __init__(self, num_outputs: int, num_classes: int, *, layers: Layers):
        key, dtype = layers.rngs.params(), layers.policy.param_dtype
        self.kernel = nnx.Param(layers.init(key, (num_outputs, num_classes), dtype))
        # Set by `train()` and `eval()` of the model.
        self.deterministic = False

    @in_own_scope
    def __call__(self, outputs: jax.Array) -> jax.Array:
        """Compute cosine similarities of outputs with the centres, (B, classes)."""
        outputs, kernel = widen((outputs, self.kernel[...]))
        # A loss that scales cosines by 64 would turn TF32 rounding into errors of 0.06.
        highest = jax.lax.Precision.HIGHEST
        return jnp.dot(unit(outputs), unit(kernel, 0), precision=highest)


def add_cosines(
    centres: ClassCentres, x: jax.Array, rngs: nnx.Rngs | None
) -> jax.Array | WithCosines:
    """Last piece of a model: returns outputs, with cosine similarities in training."""
    del rngs
    return x if centres.deterministic else WithCosines(x, centres(x))
