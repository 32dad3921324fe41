"""Clock that divides the time of a run into activities, such as `step`."""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Literal, get_args

from jaxtrain.trainer.progress import Progress
from jaxtrain.training import compiled

# `setup` is the time before the training loop, and `step` the time of the loop that no
# other activity covers. `lost` is the time from the last checkpoint to an interruption:
# the resumed run repeats the steps in between.
Activity = Literal[
    "setup",
    "compile",
    "data_wait",
    "step",
    "evaluation",
    "checkpoint",
    "lost",
    "other",
]
ACTIVITIES: tuple[Activity, ...] = get_args(Activity)
# Lower bound of the interval in `Clock.speed`, in seconds.
MIN_SECONDS = 1e-3
# Activities that `Progress.train_seconds` excludes.
NOT_TRAINING = ("setup", "compile", "lost")


class Clock:
    """Adds each second of a run to exactly one of `ACTIVITIES`, such as `step`.

    Compilation time is added to `compile` instead of the current activity.

    Args:
      began: Start time of the run. Defaults to now.
      compile_seconds: Function that returns this process's total compilation time.
      now: Function that returns the current time in seconds.
    """

    def __init__(
        self,
        began: float | None = None,
        *,
        compile_seconds: Callable[[], float] = compiled.total_seconds,
        now: Callable[[], float] = time.perf_counter,
    ):
        self._now, self._compile_seconds = now, compile_seconds
        self._seconds: dict[str, float] = dict.fromkeys(ACTIVITIES, 0.0)
        self._activity: Activity = "setup"
        self._timed_until = now() if began is None else began
        self._compiled = compile_seconds()
        # `step_seconds` at the last log line.
        self._logged_seconds = 0.0

    def switch(self, activity: Activity) -> Activity:
        """Add time to another activity from now on; return the previous activity."""
        self._charge()
        before, self._activity = self._activity, activity
        return before

    @contextlib.contextmanager
    def timing(self, activity: Activity) -> Iterator[None]:
        """Context manager: add the duration of the block to an activity."""
        before = self.switch(activity)
        try:
            yield
        finally:
            self.switch(before)

    def seconds(self) -> dict[str, float]:
        """Seconds of the run in each activity, including the time before a resume."""
        self._charge()
        return dict(self._seconds)

    def wall_seconds(self) -> float:
        """Total seconds of all activities."""
        return sum(self.seconds().values())

    def step_seconds(self) -> float:
        """Seconds of training steps, including waits for data."""
        self._charge()
        return self._seconds["step"] + self._seconds["data_wait"]

    def speed(self, examples: int, until: float) -> float:
        """Throughput of training steps since the last call, in examples per second.

        Args:
          examples: Number of examples of these steps.
          until: Value of `step_seconds` when the last of these steps finished.
        """
        seconds, self._logged_seconds = until - self._logged_seconds, until
        # `seconds` is 0 if one poll found the ends of both this and the last interval.
        return examples / max(seconds, MIN_SECONDS)

    def go_on(
        self, saved: Mapping[str, float], spent: float, since: Activity = "lost"
    ) -> None:
        """Add the time of the run before a resume.

        Args:
          saved: Seconds by activity, from the checkpoint.
          spent: Total seconds of the run up to the last log line before the resume.
          since: Activity for the time from the checkpoint to this log line.
        """
        self._charge()
        for name, seconds in saved.items():
            self._seconds[name] += seconds
        self._seconds[since] += max(0.0, spent - sum(saved.values()))
        self._logged_seconds = self.step_seconds()

    def update(self, progress: Progress) -> None:
        """Write the seconds to `progress`."""
        progress.seconds = seconds = self.seconds()
        progress.step_seconds = self.step_seconds()
        progress.train_seconds = sum(
            value for name, value in seconds.items() if name not in NOT_TRAINING
        )

    def _charge(self) -> None:
        """Divide the time since the last call between the activity and `compile`."""
        now, compiled_seconds = self._now(), self._compile_seconds()
        compiling = compiled_seconds - self._compiled
        self._seconds[self._activity] += now - self._timed_until - compiling
        self._seconds["compile"] += compiling
        self._timed_until, self._compiled = now, compiled_seconds
