"""Ends a stopped program at once: a second signal came, or its time to save is up.

Batch systems kill a program soon after the first signal. A thread waits for signals
here, because Python runs its handlers in the main thread alone, between two of its own
instructions: never while that thread waits for a device that hangs.
"""

import math
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Collection

from jaxtrain.console import tell
from jaxtrain.processes import peers

# A signal to the process group often comes twice, passed on by a parent.
REPEAT_SECONDS = 1.0
# To look into a folder that may hang itself.
LOOK_SECONDS = 1.0


class Grace:
    """Ends the process on a second signal, or when the time to save is up.

    It waits for signals between `start` and `end`.

    Args:
      signals: that count; others are left alone.

    Attributes:
      call_seconds: What a call of the training step takes, as measured by the loop: a
        run saves only once the device has finished the one under way.
      step: Steps that the device was given so far, as told by the loop; 0 until it
        was given one.
    """

    def __init__(self, signals: Collection[int]):
        self._signals = signals
        self._seconds: float | None = None
        self._newest: Callable[[], int] | None = None
        self.call_seconds = 0.0
        self.step = 0

    def limit(self, seconds: float | None, newest: Callable[[], int]) -> None:
        """Set how long a run may take to stop.

        Args:
          seconds: from the first signal; None: what it takes.
          newest: returns the last step that was saved; it may hang, as its disk does.
        """
        self._seconds, self._newest = seconds, newest

    def allowed(self) -> float:
        """Return the seconds from the first signal to the end.

        Where a call takes more than half of the limit, it is twice a call: one may be
        under way, and to save may take as long again.
        """
        if self._seconds is None:
            return math.inf
        return max(self._seconds, 2 * self.call_seconds)

    def start(self) -> None:
        """Start to wait for signals, in the main thread, which alone may."""
        self._read, self._write = socket.socketpair()
        self._write.setblocking(False)
        self._previous = signal.set_wakeup_fd(
            self._write.fileno(), warn_on_full_buffer=False
        )
        threading.Thread(target=self._watch, daemon=True).start()

    def end(self) -> None:
        """Stop waiting for signals."""
        signal.set_wakeup_fd(self._previous)
        self._write.close()

    def _watch(self) -> None:
        with self._read:
            first = self._next()
            since = time.monotonic()
            seconds = self.allowed()
            until = since + seconds
            again = first
            while again and time.monotonic() - since < REPEAT_SECONDS:
                again = self._next(until)
        if again is None:
            code = 128 + (signal.SIGINT if first == signal.SIGINT else signal.SIGTERM)
            reason = f"within checkpoint.grace_seconds = {self._seconds:g}"
            if seconds != self._seconds:
                reason = f"within {seconds:.0f} s, twice what a step takes"
            self._leave(code, f"not saved {reason}")
        elif again:
            self._leave(1, "not saved, as a second signal came")

    def _next(self, until: float = math.inf) -> int | None:
        """Wait for a signal; 0: `end` was called; None: the time is up."""
        while (left := until - time.monotonic()) > 0:
            self._read.settimeout(None if left == math.inf else left)
            try:
                # The number of each signal; nothing: the other side was closed.
                number = self._read.recv(1)
            except TimeoutError:
                break
            if not number or number[0] in self._signals:
                return number[0] if number else 0
        return None

    def _leave(self, code: int, message: str) -> None:
        if self._newest is not None:
            message = self._what_is_left(message, _in_time(self._newest))
        tell(f"stopped: {message}")
        others = peers.current()
        if others is not None:
            others.leave(code, message)
        os._exit(code)

    def _what_is_left(self, message: str, newest: int | None) -> str:
        """Say where the same command goes on; that nothing is lost, if that is so."""
        if newest is None:
            return f"{message}: the same command goes on from the last checkpoint"
        if self.step > newest:
            return f"{message}: the same command goes on from step {newest}"
        since = f"step {newest}, which is saved" if newest else "the start"
        return (
            f"no step was finished since {since}, so nothing is lost: the same command "
            "goes on from there"
        )


def _in_time(newest: Callable[[], int]) -> int | None:
    """Return the last step that was saved; None: the disk is what hangs."""
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(newest()), daemon=True)
    thread.start()
    thread.join(LOOK_SECONDS)
    return found[0] if found else None
