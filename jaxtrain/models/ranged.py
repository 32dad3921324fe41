"""Layers whose input and output another part of the package may round."""

from collections.abc import Callable

import jax
from flax import nnx


class Ranged(nnx.Module):
    """A layer whose input and output may be rounded.

    Attributes:
      input_range: Rounds what the layer takes; None leaves it.
      output_range: Rounds what it puts out; None leaves it.
    """

    input_range: Callable[[jax.Array], jax.Array] | None = None
    output_range: Callable[[jax.Array], jax.Array] | None = None

    def take_in(self, x: jax.Array) -> jax.Array:
        """Return the input of the layer, rounded if it is to be."""
        return x if self.input_range is None else self.input_range(x)

    def put_out(self, y: jax.Array) -> jax.Array:
        """Return the output of the layer, rounded if it is to be."""
        return y if self.output_range is None else self.output_range(y)
