"""Limit of calls dispatched ahead of the device.

A few calls keep the device busy. They must also be few seconds of work: a run that is
asked to stop saves only after the device has finished them.
"""

import time
from collections.abc import Callable
from typing import Any

import jax

# Upper limit of calls in flight.
MAX_IN_FLIGHT = 8
# Seconds of calls in flight; but one call is always in flight beside the running one,
AHEAD_SECONDS = 1.0
# unless a call takes longer than this: then to send the next one takes next to nothing.
LONG_CALL_SECONDS = 5.0


def calls_ahead(call_seconds: float | None) -> int:
    """Number of calls that may be in flight at a dispatch.

    Args:
      call_seconds: Duration of a call in seconds; None if not measured yet.
    """
    if call_seconds is None:
        return 1
    if call_seconds > LONG_CALL_SECONDS:
        return 0
    return max(1, int(min(AHEAD_SECONDS / max(call_seconds, 1e-9), MAX_IN_FLIGHT)))


class Pace:
    """Throttle of dispatches: waits for the device after every few dependent calls.

    `seconds` is the clock.
    """

    def __init__(self, seconds: Callable[[], float] = time.perf_counter):
        self._seconds = seconds
        self._since, self._num_sent, self._most = seconds(), 0, 1

    def sent(self, result: Any) -> None:
        """Record a dispatched call by its result; wait if too many are in flight."""
        self._num_sent += 1
        if self._num_sent < self._most:
            return
        jax.block_until_ready(result)
        now = self._seconds()
        self._most = max(1, calls_ahead((now - self._since) / self._num_sent))
        self._since, self._num_sent = now, 0
