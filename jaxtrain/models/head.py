"""The last layer of a model: dropout and a dense layer."""

import jax
import jax.numpy as jnp
from flax import nnx
from flax.typing import Initializer

from jaxtrain.dtypes import wide
from jaxtrain.models.layers import Layers, Linear
from jaxtrain.models.named import in_own_scope


class Head(nnx.Module):
    """Dropout and a dense layer, whose outputs have the output dtype of the policy.

    Features and kernel have the compute dtype. Products are accumulated, and the bias
    is added, in at least float32: in bfloat16, an output of 17 would have an error of
    up to 0.06.

    Attributes:
      bare: Whether to return the inputs of the dense layer instead of its outputs.
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
        # The dropout has no `rngs`, as each call gets an RNG stream as argument.
        self.dropout = nnx.Dropout(dropout)
        self.linear = layers.linear(in_features, num_outputs, init=init, split="out")
        self.dtype = layers.policy.output_dtype
        self.bare = False

    def __call__(self, x: jax.Array, rngs: nnx.Rngs | None = None) -> jax.Array:
        x = self.dropout(x, rngs=rngs)
        if self.bare:
            return x
        linear = self.linear
        x = linear.with_own_copy(_wide_sums, linear.quantize_input(x))
        return linear.quantize_output(x).astype(self.dtype)


@in_own_scope
def _wide_sums(layer: Linear, x: jax.Array) -> jax.Array:
    assert layer.bias is not None
    # Call `promote_dtype` as `nnx.Linear` does, because custom transforms may replace
    # it. The bias is not cast: it is added in at least float32.
    arrays = (x, layer.kernel[...], None)
    x, kernel, _ = layer.promote_dtype(arrays, dtype=layer.dtype)
    outputs = jnp.dot(x, kernel, preferred_element_type=wide(layer.dtype))
    return outputs + layer.bias[...]


def mean_head(head: Head, x: jax.Array, rngs: nnx.Rngs | None) -> jax.Array:
    """Apply global average pooling and the head, as the last piece of most models."""
    return head(x.mean((1, 2)), rngs)
