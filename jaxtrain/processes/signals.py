"""SIGINT, SIGTERM, SIGUSR1: at the first the run saves and stops, then at once.

Batch systems kill a program soon after the first signal. A thread waits for signals,
too, because Python runs its handlers in the main thread alone, between two of its own
instructions: never while that thread waits for a device that hangs.
"""

import contextlib
import math
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from jaxtrain.console import tell
from jaxtrain.errors import Interrupted
from jaxtrain.processes import cluster

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
# How long Python may take to leave a destructor that swallowed an `Interrupted`.
AGAIN_SECONDS = 0.01
# A signal to the process group often comes twice, passed on by a parent.
REPEAT_SECONDS = 1.0
# To look into a folder that may hang itself.
LOOK_SECONDS = 1.0


def ignore() -> None:
    """Ignore signals from now on.

    Data workers call this, as the main process ends them; and the program does when all
    is done: a copy of the signal may still arrive while the processes end together.
    """
    for signum in SIGNALS:
        signal.signal(signum, signal.SIG_IGN)


class Grace:
    """Ends the process on a second signal, or when the time to save is up.

    It waits for signals between `start` and `end`.

    Attributes:
      call_seconds: What a call of the training step takes, as measured by the loop: a
        run saves only once the device has finished the one under way.
      step: Steps that the device was given so far, as told by the loop; 0 until it
        was given one.
    """

    def __init__(self) -> None:
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
            if not number or number[0] in SIGNALS:
                return number[0] if number else 0
        return None

    def _leave(self, code: int, message: str) -> None:
        if self._newest is not None:
            message = self._what_is_left(message, _in_time(self._newest))
        tell(f"stopped: {message}")
        os._exit(code)  # JAX ends the others.

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


class StopSignals:
    """While entered, a signal ends the program in order; a second one, at once.

    As long as there is nothing to save it raises `Interrupted`; then it is remembered.
    Of several processes each stops where the others do, whichever got the signal.

    Attributes:
      signum: the signal's number, or None; SIGUSR1, which batch systems send ahead of
        the end, counts as SIGTERM.
      agreed: whether all processes have agreed to stop.
      defer: set once there is something to save, and a loop that asks `requested`; and
        when all is done.
      grace: ends the program if it does not end in order.
    """

    def __init__(self) -> None:
        self.signum: int | None = None
        self.agreed, self._asked = False, 0
        self.defer = False
        self.grace = Grace()
        self._entered = False

    def requested(self) -> bool:
        """Whether to stop here; all processes ask at the same places."""
        here = cluster.current()
        if here.num == 1:
            return self.signum is not None
        self._asked += 1
        if here.should_stop(self._asked) and not self.agreed:
            received = [one for one in here.gather(self.signum) if one is not None]
            # JAX may have been told by the platform that machines are to go.
            self.signum = received[0] if received else signal.SIGTERM
            self.agreed = True
        return self.agreed

    def __enter__(self) -> "StopSignals":
        # Python allows handlers in the main thread alone; elsewhere the caller's hold.
        if threading.current_thread() is threading.main_thread():
            self.grace.start()
            self._previous: dict[int, Any] = {
                s: signal.signal(s, self._handle) for s in SIGNALS
            }
            self._previous[signal.SIGALRM] = signal.signal(signal.SIGALRM, self._act)
            self._unraisable = sys.unraisablehook
            sys.unraisablehook = self._repeat
            self._entered = True
        return self

    def __exit__(self, *_: object) -> None:
        if not self._entered:
            return
        # Another hook that was put on top of ours goes on, and ours below it.
        if sys.unraisablehook == self._repeat:
            sys.unraisablehook = self._unraisable
        self._entered = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        self.grace.end()
        for signum, handler in self._previous.items():
            signal.signal(signum, handler)

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        if self.signum is None:
            self._name = signal.Signals(signum).name
            self.signum = signal.SIGTERM if signum == signal.SIGUSR1 else signum
            self._act()

    def _act(self, *_: Any) -> None:
        if self.signum is None:
            return  # An alarm that is not ours.
        if not self.defer:
            raise Interrupted(
                self.signum, "there was nothing to save yet, so nothing was lost"
            )
        cluster.current().request_stop()
        # Not print: it may be what the signal came into.
        text = f"\n{self._name}: saving, then stopping; again: stop at once\n"
        with contextlib.suppress(OSError):
            os.write(2, text.encode())

    def _repeat(self, swallowed: "sys.UnraisableHookArgs") -> None:
        """Raise again what Python swallowed, as the signal came into a destructor.

        Or into a callback of the garbage collector, such as JAX's. The alarm is no
        second signal to `Grace`.
        """
        if self._entered and swallowed.exc_type is Interrupted:
            signal.setitimer(signal.ITIMER_REAL, AGAIN_SECONDS)
        else:
            self._unraisable(swallowed)
