"""Evaluation metrics: sums on the device, values on the host."""

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
    """An evaluation metric: a number, vector or matrix.

    Either `add` computes sums, with constant memory, or `keep` collects per-example
    arrays, for metrics that are not functions of sums, such as the area under the ROC
    curve. Metrics with the same `add` or `keep` function share its result.

    Attributes:
      add: Function `(outputs, target, mask) -> array`, on the device: the sum over the
        examples with mask 1 in a batch.
      value: Function `(sum of all batches, num_examples) -> value`, or `(per-example
        arrays, num_examples) -> value`, on the host. The value is a number or nested
        lists, or None if undefined.
      better: Whether "higher" or "lower" values are better; None if the metric cannot
        rank evaluations.
      keep: Function `(outputs, target) -> arrays (B, ...)`, any pytree, on the device.
        `value` takes the arrays (N, ...) of all examples.
      resampled: Whether `value` supports bootstrap resamples of the per-example arrays,
        and is fast enough for 200 resamples.
      title: Title in reports. Defaults to the name.
      min_classes: Minimum number of classes for which the metric is computed, such as
        6 for top-5 accuracy.
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
            raise UserError("Metric: expected either add or keep")
        if self.resampled and self.keep is None:
            raise UserError("Metric: resampled = True requires keep; remove resampled")


@dataclass(frozen=True)
class Goal:
    """Metric that ranks evaluations, and whether higher values are better."""

    metric: str
    higher: bool

    def improves(self, new: Any, old: float | None) -> bool:
        """Whether `new` is better than `old`; False if `new` is NaN or not a number."""
        if not isinstance(new, int | float):
            return False
        if old is None:
            return new == new
        return new > old if self.higher else new < old


def formatted(values: Mapping[str, Any], names: Iterable[str]) -> dict[str, str]:
    """Format the numeric values of `names` with 4 decimals; omit other values."""
    return {
        name: f"{values[name]:.4f}"
        for name in names
        if isinstance(values.get(name), int | float)
    }


def scalars(values: dict[str, Any]) -> dict[str, Any]:
    """Select the values that are neither lists nor dicts."""
    return {n: v for n, v in values.items() if not isinstance(v, list | dict)}


def lowest_class(values: Mapping[str, Any], metric: str) -> int | None:
    """Class with the lowest value of a metric; None if no class has a value."""
    found = values.get(metric)
    # None means a class without examples; 0 means no correct predictions.
    known = enumerate(found if isinstance(found, list) else [])
    rated = [(value, i) for i, value in known if value is not None]
    return min(rated)[1] if rated else None


def first_names(
    metrics: Mapping[str, Metric], kind: Literal["add", "keep"]
) -> dict[Callable[..., Any], str]:
    """Map each `add` (or `keep`) function to the name of the first metric with it."""
    names: dict[Callable[..., Any], str] = {}
    for name, metric in metrics.items():
        function = getattr(metric, kind)
        if function is not None:
            names.setdefault(function, name)
    return names


def found_names(metrics: Mapping[str, Metric]) -> dict[str, str]:
    """Map names of metrics to the first name with the same `add` or `keep` function."""
    names = first_names(metrics, "add") | first_names(metrics, "keep")
    functions: dict[str, Any] = {n: m.add or m.keep for n, m in metrics.items()}
    return {name: names[function] for name, function in functions.items()}


def values_of(
    metrics: Mapping[str, Metric], sums: Mapping[str, Any], kept: Mapping[str, Any]
) -> dict[str, Any]:
    """Compute the loss, and the metrics whose sums or per-example arrays are given.

    Args:
      metrics: Metrics by name.
      sums: Sums over all examples, including the loss, and `num_examples`.
      kept: Per-example arrays of metrics with `keep`, (N, ...) each.
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
    """Return the `Goal` for `metric`, the value of the config field `field`.

    Raises:
      UserError: The metric is unknown or has no direction.
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
    """Convert NumPy values to Python numbers and lists, for JSON."""
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value
