"""Class centres: one learned vector per class, for losses on cosine similarities."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from jaxtrain.dtypes import widen
from jaxtrain.models.layers import Layers
from jaxtrain.models.named import NamedLayer, in_own_scope

# Name of the `ClassCentres` layer in a model.
CENTRES = "class_centres"
# Minimum of the squared norm before division, so that zero vectors remain zero.
MIN_SQUARED_NORM = 1e-24


def unit(x: jax.Array, axis: int = -1) -> jax.Array:
    """Normalize the vectors along an axis to unit length (L2 norm)."""
    squares = jnp.sum(jnp.square(x), axis, keepdims=True)
    return x * jax.lax.rsqrt(jnp.maximum(squares, MIN_SQUARED_NORM))


class WithCosines(NamedTuple):
    """Training outputs of a model with class centres.

    Attributes:
      outputs: Outputs of the model, (B, num_outputs).
      cosines: Cosine similarities between outputs and class centres, (B, classes), in
        at least float32.
    """

    outputs: jax.Array
    cosines: jax.Array


class ClassCentres(NamedLayer):
    """A learned vector per class, compared with the outputs by cosine similarity.

    The vectors are replicated, although the `model` axis shards the outputs.
    """

    def __init__(self, num_outputs: int, num_classes: int, *, layers: Layers):
        key, dtype = layers.rngs.params(), layers.policy.param_dtype
        self.kernel = nnx.Param(layers.init(key, (num_outputs, num_classes), dtype))
        # The model's methods `train()` and `eval()` set this attribute.
        self.deterministic = False

    @in_own_scope
    def __call__(self, outputs: jax.Array) -> jax.Array:
        """Compute cosine similarities between outputs and centres, (B, classes)."""
        outputs, kernel = widen((outputs, self.kernel[...]))
        # Losses multiply cosines by up to 64, which would increase TF32's error to
        # 0.06.
        highest = jax.lax.Precision.HIGHEST
        return jnp.dot(unit(outputs), unit(kernel, 0), precision=highest)


def add_cosines(
    centres: ClassCentres, x: jax.Array, rngs: nnx.Rngs | None
) -> jax.Array | WithCosines:
    """Last piece of a model: in training, add cosine similarities to the outputs."""
    del rngs
    return x if centres.deterministic else WithCosines(x, centres(x))
