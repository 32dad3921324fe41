"""The range of an activation, chosen from the values that it has on some images.

`minmax` keeps all of them; the others cut off the few largest, so that those that are
left are rounded more finely: `percentile` by how many (Wu et al. 2020,
arXiv:2004.09602), `mse` by what makes the mean squared error of rounding least
(Nagel et al. 2021, arXiv:2106.08295).
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from jaxtrain.plugins.quantization.fake_quantization import ACTIVATION_LEVELS

Method = Literal["mse", "percentile", "minmax"]
# Part of the values that `percentile` cuts off at each end.
CUT_OFF = 1e-4
# Ends that `mse` tries, as parts of the largest value, and how often it tries both.
TRIED = np.linspace(0.05, 1, 96)
ROUNDS = 2


@dataclass(frozen=True, eq=False)
class Seen:
    """Values that an activation has had.

    Attributes:
      low: The least, or 0 if that is less.
      high: The largest, or 0 if that is more.
      sample: Some of them, float32 (n,), drawn evenly.
    """

    low: float
    high: float
    sample: np.ndarray


def choose_range(seen: Seen, method: Method) -> tuple[float, float]:
    """Return the lower end, 0 or less, and the upper end, 0 or more."""
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
    """Return the range of which the rounded values differ least; of equals the last."""
    errors = [squared_error(values, *ends) for ends in ranges]
    return ranges[len(errors) - 1 - int(np.argmin(errors[::-1]))]


def squared_error(values: np.ndarray, low: float, high: float) -> float:
    """Return the mean squared difference of values and what they are rounded to."""
    # Of the smallest numbers of float32 a step is 0 there.
    values, step = values.astype(np.float64), (high - low) / ACTIVATION_LEVELS
    if step <= 0:
        return float(np.mean(np.square(values)))
    zero = np.round(-low / step)
    integers = np.clip(np.round(values / step) + zero, 0, ACTIVATION_LEVELS)
    return float(np.mean(np.square((integers - zero) * step - values)))
