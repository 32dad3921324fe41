"""What a metric of an evaluation is: found on the device, valued on the host."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import jax
import numpy as np

from jaxtrain.errors import UserError


def mean(total: np.ndarray, num_examples: int) -> float:
    """Divide a sum by the number of examples."""
    return float(total) / num_examples


@dataclass(frozen=True)
class Metric:
    """A number, a vector or a matrix of an evaluation.

    It has one of `add`, whose sums take no more memory for more examples, and `keep`,
    for what is no function of sums, such as the area under a ROC curve. Metrics with
    the same function share what it finds.

    Attributes:
      add: `(outputs, target, mask) -> array`: on the device, a sum over the examples
        of a batch whose mask is 1.
      value: `(sum of all batches, num_examples) -> value`, or `(what is kept,
        num_examples) -> value`: on the host, a number or nested lists of them. What is
        not defined is None.
      better: Which of two values is better; None means that it ranks nothing.
      keep: `(outputs, target) -> arrays (B, ...)`, any pytree: on the device, what is
        kept of each example of a batch. `value` gets (N, ...) of all.
      resampled: Whether `value`, of what is kept, takes any examples, some of them
        several times, and so fast that 200 such resamples may give it an interval.
      title: What pages call it; None means its name.
      min_classes: Fewest classes for which it is computed: of five, all are among the
        top five.
    """

    add: Callable[[Any, Any, jax.Array], jax.Array] | None = None
    value: Callable[[Any, int], Any] = mean
    better: Literal["higher", "lower"] | None = None
    keep: Callable[[Any, Any], Any] | None = None
    resampled: bool = False
    title: str | None = None
    min_classes: int = 0

    def __post_init__(self) -> None:
        if (self.add is None) == (self.keep is None):
            raise UserError("a Metric has one of add and keep")
        if self.resampled and self.keep is None:
            raise UserError("a Metric with add has intervals without resampled")


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


def scalars(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values that are no lists or dicts."""
    return {n: v for n, v in values.items() if not isinstance(v, list | dict)}
