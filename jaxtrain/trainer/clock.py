"""Time accounting of a run: a clock that adds time to one account at a time."""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Literal, get_args

from jaxtrain.trainer.progress import Progress
from jaxtrain.training import compiled

# `setup` is the time before the loop, and `step` the time of the loop that is in no
# other account. `lost` is the time from the last checkpoint to an interruption: the
# resumed run repeats these steps.
Account = Literal[
    "setup",
    "compile",
    "data_wait",
    "step",
    "evaluation",
    "checkpoint",
    "lost",
    "other",
]
ACCOUNTS: tuple[Account, ...] = get_args(Account)
# Lower bound of the interval in `Clock.speed`, in seconds.
MIN_SECONDS = 1e-3
# Time accounts that `train_seconds` excludes.
NOT_TRAINING = ("setup", "compile", "lost")


class Clock:
    """Adds each second of a run to exactly one of `ACCOUNTS`, such as `step`.

    Compilation time is added to `compile` instead of the current account.

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
        self._seconds: dict[str, float] = dict.fromkeys(ACCOUNTS, 0.0)
        self._account: Account = "setup"
        self._charged_at = now() if began is None else began
        self._compiled = compile_seconds()
        # `step_seconds` at the last log line.
        self._logged_seconds = 0.0

    def switch(self, account: Account) -> Account:
        """Add time to another account from now on; return the previous account."""
        self._charge()
        before, self._account = self._account, account
        return before

    @contextlib.contextmanager
    def charging(self, account: Account) -> Iterator[None]:
        """Add the time spent in this context to an account."""
        before = self.switch(account)
        try:
            yield
        finally:
            self.switch(before)

    def seconds(self) -> dict[str, float]:
        """Seconds of each account, over all starts of the run."""
        self._charge()
        return dict(self._seconds)

    def wall_seconds(self) -> float:
        """Total seconds of all accounts."""
        return sum(self.seconds().values())

    def step_seconds(self) -> float:
        """Seconds of training steps, including waits for data."""
        self._charge()
        return self._seconds["step"] + self._seconds["data_wait"]

    def speed(self, examples: int, until: float) -> float:
        """Throughput of training steps since the last call, in examples per second.

        Args:
          examples: Number of examples of these steps.
          until: Finish time of these steps, in `step_seconds`.
        """
        seconds, self._logged_seconds = until - self._logged_seconds, until
        # The interval is 0 if one poll found the last calls of this and the previous
        # interval.
        return examples / max(seconds, MIN_SECONDS)

    def go_on(
        self, saved: Mapping[str, float], spent: float, since: Account = "lost"
    ) -> None:
        """Add the seconds of earlier starts of the run.

        Args:
          saved: Seconds by account at the resumed checkpoint.
          spent: Total seconds of the earlier starts, up to the last log line.
          since: Account of the seconds between the checkpoint and the last log line.
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
        """Add the time since the last call to the account, or to `compile`."""
        now, compiled_seconds = self._now(), self._compile_seconds()
        compiling = compiled_seconds - self._compiled
        self._seconds[self._account] += now - self._charged_at - compiling
        self._seconds["compile"] += compiling
        self._charged_at, self._compiled = now, compiled_seconds
