"""Limit on the number of asynchronously dispatched calls.

A few calls in flight keep the device busy. All calls in flight together may take a few
seconds at most: after a stop signal, a run waits for these calls before saving.
"""

import time
from collections.abc import Callable
from typing import Any

import jax

# Maximum number of calls in flight.
MAX_IN_FLIGHT = 8
# Maximum total duration of the calls in flight, in seconds.
AHEAD_SECONDS = 1.0
# Maximum duration, in seconds, of a call behind which another call is queued. After
# longer calls the idle time until the next dispatch is negligible.
LONG_CALL_SECONDS = 5.0


def calls_ahead(call_seconds: float | None) -> int:
    """Compute the maximum number of calls in flight when a call is dispatched.

    Args:
      call_seconds: Duration of a call in seconds; None if not measured yet.
    """
    if call_seconds is None:
        return 1
    if call_seconds > LONG_CALL_SECONDS:
        return 0
    return max(1, int(min(AHEAD_SECONDS / max(call_seconds, 1e-9), MAX_IN_FLIGHT)))


class Pace:
    """Limits the number of calls in flight: waits for the device every few calls.

    `seconds` is a function that returns the current time in seconds.
    """

    def __init__(self, seconds: Callable[[], float] = time.perf_counter):
        self._seconds = seconds
        self._since, self._num_sent, self._most = seconds(), 0, 1

    def sent(self, result: Any) -> None:
        """Record a dispatched call; wait for `result` if too many are in flight."""
        self._num_sent += 1
        if self._num_sent < self._most:
            return
        jax.block_until_ready(result)
        now = self._seconds()
        self._most = max(1, calls_ahead((now - self._since) / self._num_sent))
        self._since, self._num_sent = now, 0
