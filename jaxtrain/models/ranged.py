"""Layers with optional quantization of input and output."""

from collections.abc import Callable

import jax
from flax import nnx


class Ranged(nnx.Module):
    """A layer whose input and output can be quantized.

    Attributes:
      input_range: Quantizer of the input. None disables quantization.
      output_range: Quantizer of the output. None disables quantization.
    """

    input_range: Callable[[jax.Array], jax.Array] | None = None
    output_range: Callable[[jax.Array], jax.Array] | None = None

    def quantize_input(self, x: jax.Array) -> jax.Array:
        """Apply `input_range`, if set, to an input of the layer."""
        return x if self.input_range is None else self.input_range(x)

    def quantize_output(self, y: jax.Array) -> jax.Array:
        """Apply `output_range`, if set, to an output of the layer."""
        return y if self.output_range is None else self.output_range(y)
