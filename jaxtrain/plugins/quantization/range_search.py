"""Choice of an activation's range from its values on calibration images.

`minmax` covers all values. The other methods clip outliers for a finer resolution:
`percentile` clips a fixed fraction (Wu et al. 2020, arXiv:2004.09602), and `mse`
minimizes the mean squared error of rounding (Nagel et al. 2021, arXiv:2106.08295).
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from jaxtrain.plugins.quantization.fake_quantization import ACTIVATION_LEVELS

Method = Literal["mse", "percentile", "minmax"]
# Fraction of values that `percentile` clips at each end.
CUT_OFF = 1e-4
# `mse` minimizes the error by coordinate descent: each of `ROUNDS` rounds chooses the
# upper end, then the lower end. Candidates are the maximum or minimum times `TRIED`.
TRIED = np.linspace(0.05, 1, 96)
ROUNDS = 2


@dataclass(frozen=True, eq=False)
class Seen:
    """Statistics of an activation's values on calibration images.

    Attributes:
      low: Minimum of the values, at most 0.
      high: Maximum of the values, at least 0.
      sample: Random sample of the values, float32 (n,).
    """

    low: float
    high: float
    sample: np.ndarray


def choose_range(seen: Seen, method: Method) -> tuple[float, float]:
    """Choose the range (low, high) of an activation, with low <= 0 <= high."""
    if method == "percentile":
        low, high = np.quantile(seen.sample, (CUT_OFF, 1 - CUT_OFF))
        return float(min(low, 0)), float(max(high, 0))
    low, high = seen.low, seen.high
    if method == "minmax":
        return low, high
    for _ in range(ROUNDS):
        high = _best([(low, part * seen.high) for part in TRIED], seen.sample)[1]
        low = _best([(part * seen.low, high) for part in TRIED], seen.sample)[0]
    return low, high


def _best(ranges: list[tuple[float, float]], values: np.ndarray) -> tuple[float, float]:
    """Return the range with the smallest squared error; of ties, the last."""
    errors = [squared_error(values, *ends) for ends in ranges]
    return ranges[len(errors) - 1 - int(np.argmin(errors[::-1]))]


def squared_error(values: np.ndarray, low: float, high: float) -> float:
    """Mean squared error of quantizing values with the range (low, high)."""
    # The scale is 0 for the range (0, 0).
    values, step = values.astype(np.float64), (high - low) / ACTIVATION_LEVELS
    if step <= 0:
        return float(np.mean(np.square(values)))
    zero = np.round(-low / step)
    integers = np.clip(np.round(values / step) + zero, 0, ACTIVATION_LEVELS)
    return float(np.mean(np.square((integers - zero) * step - values)))
