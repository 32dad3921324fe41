"""How many calls the host may send before it waits for the device to finish some.

A few keep the device busy. They must be few seconds of work, too: a run that is told to
stop saves only once the device has finished all of them.
"""

import time
from collections.abc import Callable
from typing import Any

import jax

# The most calls in flight, however fast they are.
MAX_IN_FLIGHT = 8
# Seconds of calls in flight; but one call is always in flight beside the running one,
AHEAD_SECONDS = 1.0
# unless a call takes longer than this: then to send the next one takes next to nothing.
LONG_CALL_SECONDS = 5.0


def calls_ahead(call_seconds: float | None) -> int:
    """Return the number of calls that may be in flight when another one is sent.

    Args:
      call_seconds: Seconds that a call takes; None: not measured yet.
    """
    if call_seconds is None:
        return 1
    if call_seconds > LONG_CALL_SECONDS:
        return 0
    return max(1, int(min(AHEAD_SECONDS / max(call_seconds, 1e-9), MAX_IN_FLIGHT)))


class Pace:
    """Waits for the device after every few calls, whose results depend on each other.

    The time is that of the clock `seconds`.
    """

    def __init__(self, seconds: Callable[[], float] = time.perf_counter):
        self._seconds = seconds
        self._since, self._num_sent, self._most = seconds(), 0, 1

    def sent(self, result: Any) -> None:
        """Take what a call that was just sent will return; wait if it is time."""
        self._num_sent += 1
        if self._num_sent < self._most:
            return
        jax.block_until_ready(result)
        now = self._seconds()
        self._most = max(1, calls_ahead((now - self._since) / self._num_sent))
        self._since, self._num_sent = now, 0
