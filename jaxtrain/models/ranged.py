"""Layers with optional quantizers of input and output."""

from collections.abc import Callable

import jax
from flax import nnx


class Ranged(nnx.Module):
    """A layer whose input and output can be quantized.

    Attributes:
      input_range: Quantizer of the input, or None.
      output_range: Quantizer of the output, or None.
    """

    input_range: Callable[[jax.Array], jax.Array] | None = None
    output_range: Callable[[jax.Array], jax.Array] | None = None

    def quantize_input(self, x: jax.Array) -> jax.Array:
        """Quantize the input of the layer, if it has a quantizer."""
        return x if self.input_range is None else self.input_range(x)

    def quantize_output(self, y: jax.Array) -> jax.Array:
        """Quantize the output of the layer, if it has a quantizer."""
        return y if self.output_range is None else self.output_range(y)
