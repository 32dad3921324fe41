"""Where the seconds of a run go: a clock that charges one account at a time."""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Literal, get_args

from jaxtrain.trainer.progress import Progress
from jaxtrain.training import compiled

# `setup` ends where the loop begins, `step` is the loop but for what others name,
# and `lost` is what came after a checkpoint that the run went back to.
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
# Least time of an interval: the shortest that says something of the speed.
MIN_SECONDS = 1e-3
# What `train_seconds` does not count.
NOT_TRAINING = ("setup", "compile", "lost")


class Clock:
    """Charges each second of a run to one account: they add up to the whole.

    Compilation happens while others are charged and is taken out of them.

    Args:
      began: Time at which the run began. Defaults to now.
      compile_seconds: Seconds of compilation of this process so far.
      now: The time, in seconds.
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
        # `step_seconds` at the last line of metrics.
        self._told = 0.0

    def switch(self, account: Account) -> Account:
        """Charge an account from now on; return the one that was charged."""
        self._charge()
        before, self._account = self._account, account
        return before

    @contextlib.contextmanager
    def charging(self, account: Account) -> Iterator[None]:
        """Charge what is inside to an account."""
        before = self.switch(account)
        try:
            yield
        finally:
            self.switch(before)

    def seconds(self) -> dict[str, float]:
        """Return the seconds of each account, in all attempts so far."""
        self._charge()
        return dict(self._seconds)

    def wall_seconds(self) -> float:
        """Return the seconds of all accounts."""
        return sum(self.seconds().values())

    def step_seconds(self) -> float:
        """Return the seconds of training steps, and of waiting for their data."""
        self._charge()
        return self._seconds["step"] + self._seconds["data_wait"]

    def speed(self, examples: int, until: float) -> float:
        """Return examples a second of training steps, from the last `until` to this.

        Args:
          examples: Number of examples of these steps.
          until: When they were done, in `step_seconds`.
        """
        seconds, self._told = until - self._told, until
        # Steps that are seen done together seem to take no time.
        return examples / max(seconds, MIN_SECONDS)

    def go_on(
        self, saved: Mapping[str, float], spent: float, since: Account = "lost"
    ) -> None:
        """Add the seconds of the attempts before this one.

        Args:
          saved: Seconds by account at the checkpoint that the run goes on from.
          spent: Seconds of these attempts in all, as far as they are known.
          since: Account to charge those after the checkpoint to.
        """
        self._charge()
        for name, seconds in saved.items():
            self._seconds[name] += seconds
        self._seconds[since] += max(0.0, spent - sum(saved.values()))
        self._told = self.step_seconds()

    def update(self, progress: Progress) -> None:
        """Bring the seconds of `progress` up to date."""
        progress.seconds = seconds = self.seconds()
        progress.step_seconds = self.step_seconds()
        progress.train_seconds = sum(
            value for name, value in seconds.items() if name not in NOT_TRAINING
        )

    def _charge(self) -> None:
        """Charge the time since the last call, and what of it was compilation."""
        now, compiled_seconds = self._now(), self._compile_seconds()
        compiling = compiled_seconds - self._compiled
        self._seconds[self._account] += now - self._charged_at - compiling
        self._seconds["compile"] += compiling
        self._charged_at, self._compiled = now, compiled_seconds
