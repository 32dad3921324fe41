"""Losses of auxiliary outputs, which training adds to that of the main ones."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from jaxtrain.errors import UserError
from jaxtrain.models.auxiliary import WithAuxiliary


def auxiliary_losses(
    outputs: WithAuxiliary, loss: Callable[[Any], jax.Array], zero: jax.Array
) -> jax.Array:
    """Return the losses of auxiliary outputs, times their weight, of each example.

    Args:
      outputs: Outputs of the model in training mode.
      loss: Function of outputs that returns the loss of each example, (B,).
      zero: Zeros to which the losses are added, (B,).

    Raises:
      UserError: Auxiliary outputs have another shape than the main ones.
    """
    expected = jax.tree.map(np.shape, outputs.outputs)
    for auxiliary in outputs.auxiliary:
        shapes = jax.tree.map(np.shape, auxiliary)
        if shapes != expected:
            raise UserError(
                f"an auxiliary head puts out {shapes}, the model {expected}: "
                "expected the same"
            )
        zero += outputs.weight * loss(auxiliary)
    return zero
