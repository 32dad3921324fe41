"""What a metric of an evaluation is: summed on the device, valued on the host."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import jax
import numpy as np

TOP5 = "top5_accuracy"


def mean(total: np.ndarray, num_examples: int) -> float:
    """Divide a sum by the number of examples."""
    return float(total) / num_examples


@dataclass(frozen=True)
class Metric:
    """A number, a vector or a matrix of an evaluation.

    Attributes:
      add: `(outputs, target, mask) -> array`: on the device, a sum over the examples
        of a batch whose mask is 1. Metrics with the same function share its sum.
      value: `(sum of all batches, num_examples) -> value`: on the host, a number or
        nested lists of them. What is not defined is None.
      better: which of two values is better; None: it ranks nothing.
    """

    add: Callable[[Any, Any, jax.Array], jax.Array]
    value: Callable[[np.ndarray, int], Any] = mean
    better: Literal["higher", "lower"] | None = None


@dataclass(frozen=True)
class Goal:
    """A metric that ranks evaluations, and which of its values are better."""

    metric: str
    higher: bool

    def improves(self, new: Any, old: float | None) -> bool:
        """Whether `new` is better than `old`. A value that is not a number never is."""
        if not isinstance(new, int | float):
            return False
        if old is None:
            return new == new
        return new > old if self.higher else new < old


def formatted(values: Mapping[str, Any], names: Iterable[str]) -> dict[str, str]:
    """Return as texts those of the values named that are there, and numbers."""
    return {
        name: f"{values[name]:.4f}"
        for name in names
        if isinstance(values.get(name), int | float)
    }


def says_something(name: str, num_classes: int | None) -> bool:
    """Whether a metric is worth showing: of five classes, all are among the top 5."""
    return name != TOP5 or num_classes is None or num_classes > 5


def scalars(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values that are no lists or dicts."""
    return {n: v for n, v in values.items() if not isinstance(v, list | dict)}
