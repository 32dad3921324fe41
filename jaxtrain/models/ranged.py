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
        """Quantize an input of the layer with `input_range`, if set."""
        return x if self.input_range is None else self.input_range(x)

    def quantize_output(self, y: jax.Array) -> jax.Array:
        """Quantize an output of the layer with `output_range`, if set."""
        return y if self.output_range is None else self.output_range(y)
