"""Detection of non-finite outputs, which must not become predictions or metrics.

The `argmax` of NaN is class 0, and comparisons with NaN are false, so that non-finite
outputs would look like predictions.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

# Error message for an image without a prediction.
NOT_FINITE = "the outputs of the model are not finite"


class Checked(NamedTuple):
    """Results for a batch, with a mask of finite outputs.

    Attributes:
      values: Pytree of arrays, (B, ...).
      finite: Whether all outputs for an example are finite, bool (B,).
    """

    values: Any
    finite: Any


def finite_rows(outputs: Any) -> jax.Array:
    """Return the mask of examples with only finite values, bool (B,). Traceable.

    Args:
      outputs: Pytree of arrays, (B, ...).
    """
    rows = [
        jnp.isfinite(x).reshape(x.shape[0], -1).all(-1)
        for x in jax.tree.leaves(outputs)
    ]
    return functools.reduce(jnp.logical_and, rows)
