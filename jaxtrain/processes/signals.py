"""Handling of SIGINT, SIGTERM and SIGUSR1.

The first signal saves and stops the run, the second exits at once. Batch systems kill a
program soon after the first signal. A background thread watches for signals: Python
runs handlers only in the main thread, between bytecode instructions, and not while the
main thread blocks on a hanging device.
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

from jaxtrain.console import print_stderr
from jaxtrain.errors import Interrupted
from jaxtrain.processes import cluster

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
# Delay in seconds before an `Interrupted` that Python swallowed in a destructor is
# raised again: by then Python must have left the destructor.
AGAIN_SECONDS = 0.01
# Seconds within which repeated signals count once: a signal to the process group often
# arrives twice, as a parent process forwards it.
REPEAT_SECONDS = 1.0
# Timeout in seconds of listing the checkpoints, as the file system may hang.
LISTING_SECONDS = 1.0


def ignore() -> None:
    """Ignore signals from now on.

    Called by data workers, because the main process stops them, and at the end of the
    program, when a repeated signal may still arrive.
    """
    for signum in SIGNALS:
        signal.signal(signum, signal.SIG_IGN)


class Grace:
    """Ends the process on a second signal, or when the grace period is over.

    A thread waits for signals between `start` and `end`.

    Attributes:
      call_seconds: Measured duration of a call of the training step, in seconds. A run
        can only save after the current call.
      step: Number of steps dispatched so far, set by the loop.
    """

    def __init__(self) -> None:
        self._seconds: float | None = None
        self._newest: Callable[[], int] | None = None
        self.call_seconds = 0.0
        self.step = 0

    def limit(self, seconds: float | None, newest: Callable[[], int]) -> None:
        """Set the grace period of a stop.

        Args:
          seconds: Seconds from the first signal; None for no limit.
          newest: Function that returns the last saved step; it may block on a hanging
            disk.
        """
        self._seconds, self._newest = seconds, newest

    def allowed(self) -> float:
        """Grace period in seconds from the first signal.

        The period is at least twice the duration of a call of the training step: the
        current call must end first, and saving may take as long as a call.
        """
        if self._seconds is None:
            return math.inf
        return max(self._seconds, 2 * self.call_seconds)

    def start(self) -> None:
        """Start waiting for signals; must be called in the main thread."""
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
                reason = f"within {seconds:.0f} s, twice the duration of a step"
            self._leave(code, f"not saved {reason}")
        elif again:
            self._leave(1, "not saved, as a second signal arrived")

    def _next(self, until: float = math.inf) -> int | None:
        """Wait for a signal until a monotonic time; 0 after `end`, None on timeout."""
        while (left := until - time.monotonic()) > 0:
            self._read.settimeout(None if left == math.inf else left)
            try:
                # Each signal writes a byte; an empty read means that `end` was called.
                number = self._read.recv(1)
            except TimeoutError:
                break
            if not number or number[0] in SIGNALS:
                return number[0] if number else 0
        return None

    def _leave(self, code: int, message: str) -> None:
        if self._newest is not None:
            message = self._with_resume_step(message, _in_time(self._newest))
        print_stderr(f"stopped: {message}")
        os._exit(code)  # When this process exits, JAX ends the other processes.

    def _with_resume_step(self, message: str, newest: int | None) -> str:
        """Append to a message the step from which the same command resumes."""
        if newest is None:
            return f"{message}: the same command resumes from the last checkpoint"
        if self.step > newest:
            return f"{message}: the same command resumes from step {newest}"
        since = f"step {newest}, which is saved" if newest else "the start"
        return (
            f"no step was finished since {since}, so no progress is lost: the same "
            "command resumes from that step"
        )


def _in_time(newest: Callable[[], int]) -> int | None:
    """Result of `newest`, the last saved step; None if the disk hangs."""
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(newest()), daemon=True)
    thread.start()
    thread.join(LISTING_SECONDS)
    return found[0] if found else None


class StopSignals:
    """Context manager: a signal stops the program gracefully, a second one immediately.

    Before there is anything to save, a signal raises `Interrupted`; later it is only
    recorded. Several processes stop at the same step, whichever received the signal.

    Attributes:
      signum: Number of the signal, or None; SIGUSR1, an early warning of batch systems,
        counts as SIGTERM.
      agreed: Whether all processes have agreed to stop.
      defer: Whether to record signals instead of raising `Interrupted`. Set during a
        loop that checks `requested`, and at the end of the program.
      grace: Ends the program if it does not stop in time.
    """

    def __init__(self) -> None:
        self.signum: int | None = None
        self.agreed, self._num_calls = False, 0
        self.defer = False
        self.grace = Grace()
        self._entered = False

    def requested(self) -> bool:
        """Whether to stop here; called at the same points in all processes."""
        here = cluster.current()
        if here.num == 1:
            return self.signum is not None
        self._num_calls += 1
        if here.should_stop(self._num_calls) and not self.agreed:
            received = [one for one in here.gather(self.signum) if one is not None]
            # No process received a signal if the platform notified JAX of a preemption.
            self.signum = received[0] if received else signal.SIGTERM
            self.agreed = True
        return self.agreed

    def __enter__(self) -> "StopSignals":
        # Python allows changes of signal handlers only in the main thread.
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
        # Keep a hook that other code installed later, as it calls this hook.
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
            return  # The alarm was set by other code.
        if not self.defer:
            raise Interrupted(
                self.signum, "no step was finished yet, so no progress is lost"
            )
        cluster.current().request_stop()
        # Do not use print, which the signal may have interrupted.
        text = f"\n{self._name}: saving, then stopping; a second signal stops at once\n"
        with contextlib.suppress(OSError):
            os.write(2, text.encode())

    def _repeat(self, swallowed: "sys.UnraisableHookArgs") -> None:
        """Re-raise an `Interrupted` that Python swallowed.

        Python swallows exceptions in destructors and in callbacks of the garbage
        collector, such as JAX's. A timer raises `Interrupted` again by SIGALRM, which
        `Grace` does not count as a second signal.
        """
        if self._entered and swallowed.exc_type is Interrupted:
            signal.setitimer(signal.ITIMER_REAL, AGAIN_SECONDS)
        else:
            self._unraisable(swallowed)
