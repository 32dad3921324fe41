"""Numeric target columns: training statistics and checks.

Missing numbers are NaN.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxtrain.config.regression import MAX_LEVELS
from jaxtrain.data.columns import NAMES, ORIGIN, ROUNDING, is_rounded, original
from jaxtrain.errors import UserError, counted

# Default column name.
UNNAMED = "target"


def in_columns(targets: Any) -> Any:
    """Convert numbers (N,) or (N, columns) to floats (N, columns), at least float32."""
    dtype = np.promote_types(targets.dtype, np.float32)
    return targets.astype(dtype).reshape(len(targets), -1)


def training_numbers(facts: Mapping[str, Any]) -> np.ndarray:
    """Load the training targets in the units of the data, (N, columns)."""
    targets = facts["training_targets"]()
    check_numbers(targets, "the training split")
    return original(in_columns(targets), facts)


def levels_of(targets: np.ndarray) -> tuple[float, ...]:
    """Distinct finite numbers of the training split, in ascending order.

    Raises:
      UserError: There are too many distinct values.
    """
    levels = np.unique(targets[np.isfinite(targets)])
    if len(levels) > MAX_LEVELS:
        raise UserError(
            f"task.loss = 'ordinal' supports at most {MAX_LEVELS} distinct values, but "
            f"the training split has {len(levels):,}: choose another task.loss"
        )
    return tuple(levels.tolist())


def check_numbers(targets: Any, split: str) -> None:
    """Raise UserError for targets that are not numbers (N,) or (N, columns)."""
    array = isinstance(targets, np.ndarray) and targets.ndim in (1, 2)
    if not (array and targets.dtype.kind in "biuf"):
        raise UserError(
            f"{split} has unsupported targets: expected numbers of shape (N,) or (N, "
            "columns); choose another task"
        )


def names_of(facts: Mapping[str, Any], num: int) -> tuple[str, ...]:
    """Names of the `num` target columns, or default names."""
    if NAMES in facts:
        return tuple(map(str, facts[NAMES]))
    return (UNNAMED,) if num == 1 else tuple(f"{UNNAMED}_{i}" for i in range(num))


def statistics_of(
    targets: np.ndarray, names: Sequence[str]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each column, ignoring missing numbers.

    Sums are exact, so that a run resumed on another CPU computes the same values.

    Raises:
      UserError: A column has no numbers, only one distinct value, or an infinite
        number.
    """
    check_finite(targets, names, "the training split")
    mean, std = [], []
    for name, column in zip(names, targets.astype(np.float64).T, strict=True):
        known = column[~np.isnan(column)]
        if not len(known):
            raise UserError(
                f"task = 'regression': the column {name!r} is empty in the training "
                "split; fill in numbers, or remove the column from data.targets"
            )
        mean.append(math.fsum(known) / len(known))
        std.append(math.sqrt(math.fsum(np.square(known - mean[-1])) / len(known)))
        if known.min() == known.max():
            raise UserError(
                f"task = 'regression': the column {name!r} is constant, {known[0]:g} "
                f"in all {len(known):,} training examples with a value, and cannot be "
                "learned; remove the column from data.targets"
            )
    return tuple(mean), tuple(std)


def check_rounding(targets: np.ndarray, names: Sequence[str], split: str) -> None:
    """Raise UserError if float32 cannot represent differences within a column.

    Only custom stores can fail the check: built-in stores centre the numbers.
    """
    for name, column in zip(names, targets.T, strict=True):
        if targets.dtype == np.float64 and is_rounded(column):
            raise UserError(
                f"{split}: the numbers in the column {name!r}, such as {column[0]}, "
                "are too close together for float32; subtract an origin with "
                "jaxtrain.data.columns.centred, and add the origin to Store.facts as "
                f"{ORIGIN!r}"
            )


def as_number(x: float, std: float) -> str:
    """Format a number with 4 or more significant digits, to resolve 1 % of `std`."""
    digits = 4 if x == 0 else math.ceil(math.log10(abs(x) / std)) + 3
    return f"{x:.{min(17, max(4, digits))}g}"


def check_finite(targets: np.ndarray, names: Sequence[str], split: str) -> None:
    """Raise UserError for infinite numbers."""
    for name, column in zip(names, targets.T, strict=True):
        bad = np.flatnonzero(np.isinf(column))
        if len(bad):
            raise UserError(
                f"{split}: the column {name!r} is {column[bad[0]]} for "
                f"{counted(len(bad), 'example')}, first at index {bad[0]}: expected "
                "finite numbers, or NaN for missing values"
            )


def as_text(values: Sequence[float]) -> str:
    """Format numbers as the value of a task option."""
    return ",".join(map(repr, map(float, values)))


def check_levels(
    columns: np.ndarray,
    names: Sequence[str],
    origin: np.ndarray,
    std: np.ndarray,
    levels: Sequence[float],
    split: str,
) -> None:
    """Check that all numbers are levels of ordinal regression.

    Args:
      columns: Numbers minus `origin`, (N, columns); NaN is missing.
      names: Names of the columns.
      origin: Number that the store subtracts from each column, (columns,).
      std: Standard deviation of each column, (columns,).
      levels: Levels in ascending order.
      split: Name of the split in messages.

    Raises:
      UserError: A number is not a level.
    """
    for name, numbers, zero, scale in zip(names, columns.T, origin, std, strict=True):
        near = np.array(levels) - zero
        nearest = near[np.searchsorted((near[1:] + near[:-1]) / 2, numbers)]
        # Compare with a tolerance for float32 rounding.
        same = np.abs(numbers - nearest) <= ROUNDING * scale
        for row in np.flatnonzero(~(same | np.isnan(numbers)))[:1]:
            shown = ", ".join(as_number(x, scale) for x in levels)
            raise UserError(
                f"{split}: the column {name!r} is "
                f"{as_number(numbers[row] + zero, scale)} for image {row}: expected "
                f"one of the levels {shown}; correct the number, or add the number to "
                "task.levels"
            )
