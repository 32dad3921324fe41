"""The last layer of a model."""

import jax
import jax.numpy as jnp
from flax import nnx
from flax.typing import Initializer

from jaxtrain.dtypes import wide
from jaxtrain.models.layers import Layers, Linear
from jaxtrain.models.named import in_own_scope


class Head(nnx.Module):
    """Dropout and a dense layer, with outputs in the output dtype.

    Products use the compute dtype; sums and bias stay in at least float32 before the
    final cast: bfloat16 outputs of 17 are off by up to 0.06.

    Attributes:
      bare: Whether to return the features themselves.
    """

    def __init__(
        self,
        in_features: int,
        num_outputs: int,
        dropout: float,
        *,
        layers: Layers,
        init: Initializer | None = None,
    ):
        # No random state: the key is an argument of each call.
        self.dropout = nnx.Dropout(dropout)
        self.linear = layers.linear(in_features, num_outputs, init=init, split="out")
        self.dtype = layers.policy.output_dtype
        self.bare = False

    def __call__(self, x: jax.Array, rngs: nnx.Rngs | None = None) -> jax.Array:
        x = self.dropout(x, rngs=rngs)
        if self.bare:
            return x
        linear = self.linear
        x = linear.with_own_copy(_wide_sums, linear.take_in(x))
        return linear.put_out(x).astype(self.dtype)


@in_own_scope
def _wide_sums(layer: Linear, x: jax.Array) -> jax.Array:
    assert layer.bias is not None
    # Called as in `nnx.Linear`, for transforms that replace it; the bias stays wide.
    arrays = (x, layer.kernel[...], None)
    x, kernel, _ = layer.promote_dtype(arrays, dtype=layer.dtype)
    outputs = jnp.dot(x, kernel, preferred_element_type=wide(layer.dtype))
    return outputs + layer.bias[...]


def mean_head(head: Head, x: jax.Array, rngs: nnx.Rngs | None) -> jax.Array:
    """Global average pooling and the last layer, a piece of many models."""
    return head(x.mean((1, 2)), rngs)
