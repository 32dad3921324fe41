"""How long a run will still take, estimated from when its steps were done."""

import time
from collections.abc import Callable

# The share of the run after which the seconds of a step count half.
HALF_LIFE = 0.1


class Remaining:
    """Estimates the seconds a step takes, and those that are left.

    Evaluations and saves between steps count as parts of the steps. What comes before
    the first step, such as compilation, does not. Later steps weigh more than earlier
    ones, so that the estimate follows a run that becomes slower or faster.
    """

    def __init__(
        self,
        step: int,
        total_steps: int,
        seconds: Callable[[], float] = time.perf_counter,
    ):
        self.step = step
        self._total_steps, self._seconds = total_steps, seconds
        self._at: float | None = None  # When `step` was done.
        self._num_steps = self._num_seconds = 0.0  # Weighted.

    @property
    def begun(self) -> bool:
        """Whether a step was done since the start."""
        return self._at is not None

    def done(self, step: int) -> None:
        """Note that `step` steps are done by now."""
        if step <= self.step:
            return
        now, num_new = self._seconds(), step - self.step
        if self._at is not None:
            kept = 0.5 ** (num_new / (HALF_LIFE * self._total_steps))
            self._num_steps = self._num_steps * kept + num_new
            self._num_seconds = self._num_seconds * kept + now - self._at
        self.step, self._at = step, now

    def step_seconds(self) -> float | None:
        """Return the seconds that a step takes; None until two were done."""
        return self._num_seconds / self._num_steps if self._num_steps else None

    def left(self) -> float | None:
        """Return the seconds that are left; None until two steps were done."""
        one = self.step_seconds()
        if one is None or self._at is None:
            return None
        # A step that takes longer than the others is not done yet.
        begun = min(self._seconds() - self._at, one)
        return max(0.0, one * (self._total_steps - self.step) - begun)


def duration(seconds: float | None) -> str:
    """Return seconds as H:MM:SS."""
    if seconds is None:
        return "-:--:--"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"


def short_duration(seconds: float) -> str:
    """Return seconds as S.S s, from a minute on as H:MM:SS."""
    return f"{seconds:.1f} s" if seconds < 60 else duration(seconds)
