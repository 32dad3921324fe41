"""What a metric of an evaluation is: found on the device, valued on the host."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import jax
import numpy as np

from jaxtrain.errors import UserError, nearest


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


def lowest_class(values: Mapping[str, Any], metric: str) -> int | None:
    """Return the class with the lowest value of a metric; None: no class has any."""
    found = values.get(metric)
    # None: the class has no examples. One that is never recognised has 0.
    known = enumerate(found if isinstance(found, list) else [])
    rated = [(value, i) for i, value in known if value is not None]
    return min(rated)[1] if rated else None


def first_names(
    metrics: Mapping[str, Metric], kind: Literal["add", "keep"]
) -> dict[Callable[..., Any], str]:
    """Name each function of a kind after the first metric that it is of."""
    names: dict[Callable[..., Any], str] = {}
    for name, metric in metrics.items():
        function = getattr(metric, kind)
        if function is not None:
            names.setdefault(function, name)
    return names


def found_names(metrics: Mapping[str, Metric]) -> dict[str, str]:
    """Return for each metric the name of the first one with the same function."""
    names = first_names(metrics, "add") | first_names(metrics, "keep")
    functions: dict[str, Any] = {n: m.add or m.keep for n, m in metrics.items()}
    return {name: names[function] for name, function in functions.items()}


def values_of(
    metrics: Mapping[str, Metric], sums: Mapping[str, Any], kept: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the loss, and the metrics whose part is there, of an evaluation.

    Args:
      metrics: Metrics by name.
      sums: Sums over all examples, of the loss, too, and `num_examples`.
      kept: What metrics keep of each example, (N, ...) each.
    """
    num_examples, found = int(sums["num_examples"]), {**sums, **kept}
    names = found_names(metrics)
    loss = float(sums["loss"]) / num_examples
    values = {
        name: _plain(metric.value(found[names[name]], num_examples))
        for name, metric in metrics.items()
        if names[name] in found
    }
    if math.isnan(loss):
        values = dict.fromkeys(scalars(values), math.nan)
    return {"loss": loss, **values, "num_examples": num_examples}


def goal_of(metrics: Mapping[str, Metric], field: str, metric: str) -> Goal:
    """Return the goal of the metric that a field of the config names.

    Raises:
      UserError: It is not known, or ranks nothing.
    """
    better = {name: one.better for name, one in metrics.items()}
    ranking = {"loss": "lower", **{n: b for n, b in better.items() if b}}
    if metric not in ranking:
        known = ", ".join(ranking)
        raise UserError(
            f"{field} = {metric!r}: expected {known}{nearest(metric, ranking)}"
        )
    return Goal(metric, ranking[metric] == "higher")


def _plain(value: Any) -> Any:
    """Return numbers and lists of Python for those of NumPy: they become JSON."""
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value
