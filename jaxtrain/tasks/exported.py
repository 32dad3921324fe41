"""The array that an exported file puts out, and how it is compared with the model's."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import numpy as np

# Returns by what differences are divided, and its name.
Scale = Callable[[np.ndarray], tuple[Any, str]]
# Of outputs of a file and of the model: the former in the order of the latter, and the
# share of things that both have.
Pair = Callable[[np.ndarray, np.ndarray, Any], tuple[np.ndarray, float]]


def largest(outputs: np.ndarray) -> tuple[Any, str]:
    """Return the largest output."""
    return np.abs(outputs).max(), "the largest"


class Pairing(NamedTuple):
    """Comparison of lists of things, whose order may differ.

    Attributes:
      pair: Function that puts one list into the order of another.
      agrees: Share that it returns, in words.
    """

    pair: Pair
    agrees: str


@dataclass(frozen=True, eq=False)
class ExportedArray:
    """Output of an exported file.

    Attributes:
      name: Name in the file.
      of: Traced function of the model's outputs.
      has_classes: Whether the largest number along the last axis tells a class.
      scale: Scale of differences between the file and the model.
      about: JSON values by which the file describes its numbers.
      pairing: Comparison of things in any order; None: numbers are compared.
      limits: Keywords of the operator that suppresses overlapping boxes, where a
        runtime has its own; None: none are suppressed.
      rounds_badly: Whether a product of 16 bits before it must not be folded into it: a
        year would be rounded to a multiple of 8.
      remark: Precision of the numbers in words; None: nothing is remarkable.
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
