"""Output array of an exported file, and its comparison with the model's outputs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import numpy as np

# Function: outputs -> (divisor of differences, name of the divisor in messages).
Scale = Callable[[np.ndarray], tuple[Any, str]]
# Function: (file outputs, model outputs, ...) -> (file outputs, reordered like model
# outputs; fraction of matched items).
Pair = Callable[[np.ndarray, np.ndarray, Any], tuple[np.ndarray, float]]


def largest(outputs: np.ndarray) -> tuple[Any, str]:
    """`Scale` whose divisor is the largest absolute output."""
    return np.abs(outputs).max(), "the largest"


class Pairing(NamedTuple):
    """Matching of unordered items, such as boxes, before they are compared.

    Attributes:
      pair: Function that reorders the file's items to match the model's.
      agrees: Format string for the fraction of matched items, in messages.
    """

    pair: Pair
    agrees: str


@dataclass(frozen=True, eq=False)
class ExportedArray:
    """Output of an exported file.

    Attributes:
      name: Name of the array in the file.
      of: Traced function from the model's outputs to the array.
      has_classes: Whether argmax along the last axis is a class.
      scale: Function that returns the divisor of differences between file and model.
      about: Metadata to store with the array in the file, JSON values by name.
      pairing: Matching of unordered items; None compares elementwise.
      limits: Arguments of non-maximum suppression in the runtime; None disables it.
      rounds_badly: Whether to insert an optimization barrier before `of`. If XLA fused
        `of` into a 16-bit product, large values, such as years, would be rounded to
        multiples of 8.
      remark: Description of reduced precision; None for full precision.
    """

    name: str
    of: Callable[[Any], jax.Array]
    has_classes: bool = False
    scale: Scale = largest
    about: Mapping[str, Any] = field(default_factory=dict)
    pairing: Pairing | None = None
    limits: Mapping[str, Any] | None = None
    rounds_badly: bool = False
    remark: str | None = None
