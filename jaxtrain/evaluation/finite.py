"""Outputs that are not finite, of which no prediction and no metric can be made.

An `argmax` of NaN is class 0, and a threshold that NaN is compared with is not reached:
such outputs would look like predictions.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

# Of one image, in the place of its prediction.
NOT_FINITE = "the outputs of the model are not finite"


class Checked(NamedTuple):
    """Values made of the outputs of a model for a batch.

    Attributes:
      values: Any tree of arrays, (B, ...).
      finite: Whether all outputs for an example are finite, bool (B,).
    """

    values: Any
    finite: Any


def finite_rows(outputs: Any) -> jax.Array:
    """Return whether all numbers of each example are finite, bool (B,). May be traced.

    Args:
      outputs: Any tree of arrays, (B, ...).
    """
    rows = [
        jnp.isfinite(x).reshape(x.shape[0], -1).all(-1)
        for x in jax.tree.leaves(outputs)
    ]
    return functools.reduce(jnp.logical_and, rows)
