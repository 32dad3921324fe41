"""Axes: which part of the numbers a chart shows, and where its ticks are."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

# Positive values further apart than this are shown by their logarithms.
LOG_RATIO = 100.0


@dataclass(frozen=True)
class Scale:
    """Maps values, from `low` to `high`, to places, from `start` to `stop` in pixels.

    Attributes:
      log: Whether by the logarithms of the values.
      ticks: Values to mark.
    """

    low: float
    high: float
    start: float
    stop: float
    log: bool
    ticks: tuple[float, ...]

    def place(self, value: float) -> float:
        low, high = self.low, self.high
        if self.log:
            low, high, value = math.log10(low), math.log10(high), math.log10(value)
        return self.start + (self.stop - self.start) * (value - low) / (high - low)


def make_scale(
    values: Sequence[float], start: float, stop: float, *, num: int, log: bool = False
) -> Scale:
    """Return a scale that all values fit into.

    Args:
      values: Finite values, at least one.
      start: Place of the smallest, in pixels.
      stop: Place of the largest, in pixels.
      num: Number of ticks, about.
      log: Whether to use logarithms if the values are positive and far apart.
    """
    low, high = min(values), max(values)
    if log and low > 0 and high / low > LOG_RATIO:
        return _log_scale(low, high, start, stop, num)
    if high - low <= 1e-9 * max(abs(low), abs(high)):
        margin = abs(low) * 0.05 or 1.0
        low, high = low - margin, high + margin
    step = _round_step(high / num - low / num)
    first = math.floor(low / step + 1e-9)
    last = math.ceil(high / step - 1e-9)
    ticks = tuple(i * step for i in range(first, last + 1))
    return Scale(ticks[0], ticks[-1], start, stop, False, ticks)


def _log_scale(low: float, high: float, start: float, stop: float, num: int) -> Scale:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    every = max(1, math.ceil((last - first) / num))
    ticks = tuple(10.0**n for n in range(first, last + 1, every))
    return Scale(10.0**first, 10.0**last, start, stop, True, ticks)


def _round_step(step: float) -> float:
    """Return the next larger number of 1, 2, 5 and their tens."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(n * power for n in (1, 2, 5, 10) if n * power >= step * (1 - 1e-9))


def short(value: float) -> str:
    """Return a number in few letters, for ticks."""
    if value == 0:
        return "0"
    size = abs(value)
    if size < 1e-3 or size >= 1e15:
        return f"{value:.3g}".replace("e-0", "e-").replace("e+", "e").replace("e0", "e")
    for limit, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if size >= limit:
            return f"{value / (1e3 if letter == 'k' else limit):.4g}{letter}"
    return f"{value:.4g}"
