"""Regression metrics: sums per column on the device, values on the host.

Metrics are averaged over columns, as with `uniform_average` in scikit-learn. Missing
numbers, NaN, are ignored.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrain.tasks.metrics import Metric

# Function (outputs, target, mask) -> sums over a batch.
Add = Callable[..., jax.Array]
# Suffix in the names of metrics that have a value per column.
OF_COLUMNS = "_of_columns"
OfColumn = Callable[[np.ndarray], float | None]


def error_sums(
    error: jax.Array, target: jax.Array, known: jax.Array, std: jax.Array
) -> jax.Array:
    """Sums over a batch, (5, columns).

    The sums are count, |error|, error^2, target and target^2. Targets are centred, as
    R^2 would lose precision with sums of squares of raw targets.

    Args:
      error: Error of each number in standard deviations, (B, columns).
      target: Standardized target, (B, columns).
      known: Mask of the known targets, bool (B, columns).
      std: Standard deviation of each column, (columns,); converts errors and targets
        to the column's unit.
    """
    error, target = error * std, target * std
    counted = jnp.ones_like(error)
    summands = counted, jnp.abs(error), jnp.square(error), target, jnp.square(target)
    # Missing numbers are NaN, and NaN * 0 is NaN.
    return jnp.stack([jnp.sum(jnp.where(known, x, 0), 0) for x in summands])


def coverage_sums(inside: jax.Array, known: jax.Array) -> jax.Array:
    """Count known targets, and known targets in prediction intervals, (2, columns)."""
    counts = jnp.sum(known, 0), jnp.sum(known & inside, 0)
    return jnp.stack(counts).astype(jnp.int32)


def _mae(sums: np.ndarray) -> float | None:
    num, absolute, *_ = sums.tolist()
    return absolute / num if num else None


def _rmse(sums: np.ndarray) -> float | None:
    num, _, square, *_ = sums.tolist()
    return math.sqrt(square / num) if num else None


def _r2(sums: np.ndarray) -> float | None:
    """R^2; None if the targets have no variance."""
    num, _, square, target, target_square = map(float, sums)
    spread = target_square - target**2 / num if num else 0.0
    return 1 - square / spread if spread > 0 else None


def _covered(sums: np.ndarray) -> float | None:
    num, inside = sums.tolist()
    return inside / num if num else None


def _rows(add: Add, name: str, of: OfColumn, **given: Any) -> dict[str, Metric]:
    """Create two metrics: the mean over the columns, and the values per column."""

    def each(sums: np.ndarray, num_examples: int) -> list[float | None]:
        del num_examples
        return [of(column) for column in np.asarray(sums).T]

    def mean(sums: np.ndarray, num_examples: int) -> float | None:
        known = [x for x in each(sums, num_examples) if x is not None]
        return float(np.mean(known)) if known else None

    title = given.pop("title", name)
    return {
        name: Metric(add, mean, title=title, **given),
        f"{name}{OF_COLUMNS}": Metric(add, each, title=f"{title} of columns"),
    }


def number_metrics(errors: Add, coverage: Add) -> Mapping[str, Metric]:
    """All regression metrics by name.

    Args:
      errors: Function that returns `error_sums` of a batch.
      coverage: Function that returns `coverage_sums` of a batch.
    """
    return {
        **_rows(errors, "mae", _mae, better="lower", title="MAE"),
        **_rows(errors, "rmse", _rmse, better="lower", title="RMSE"),
        **_rows(errors, "r2", _r2, better="higher", title="R²"),
        **_rows(coverage, "coverage", _covered),
    }
