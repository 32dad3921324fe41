"""Handling of SIGINT, SIGTERM and SIGUSR1.

At the first signal, the run saves and stops. The process exits at the second signal, or
at the end of a grace period, because batch systems kill a program soon after the first
signal. A background thread ends the process: Python runs signal handlers only in the
main thread, and not while the main thread waits for a hanging device.
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
# Delay in seconds before an `Interrupted` that was swallowed in a destructor is raised
# again. The destructor must have ended by then.
AGAIN_SECONDS = 0.01
# Time in seconds within which further signals are ignored: a signal to a process group
# often arrives twice, because a parent process also forwards it.
REPEAT_SECONDS = 1.0
# Timeout in seconds for listing the checkpoints, because the file system may hang.
LISTING_SECONDS = 1.0


def ignore() -> None:
    """Ignore SIGINT, SIGTERM and SIGUSR1 from now on.

    Called in data workers, because the main process stops them, and at the end of the
    program, because a signal may arrive a second time.
    """
    for signum in SIGNALS:
        signal.signal(signum, signal.SIG_IGN)


class Grace:
    """Ends the process at a second signal, or at the end of the grace period.

    Between `start` and `end`, a thread waits for signals.

    Attributes:
      call_seconds: Measured duration in seconds of a call of the compiled training
        step. A run can only save after the current call.
      step: Number of steps dispatched so far, set by the training loop.
    """

    def __init__(self) -> None:
        self._seconds: float | None = None
        self._newest: Callable[[], int] | None = None
        self.call_seconds = 0.0
        self.step = 0

    def limit(self, seconds: float | None, newest: Callable[[], int]) -> None:
        """Set the grace period.

        Args:
          seconds: Time from the first signal, in seconds; None for no limit.
          newest: Function that returns the last saved step; blocks if the disk hangs.
        """
        self._seconds, self._newest = seconds, newest

    def allowed(self) -> float:
        """Grace period in seconds, at least twice `call_seconds`.

        The current call of the training step must end before the run can save, and
        saving may take as long as a call.
        """
        if self._seconds is None:
            return math.inf
        return max(self._seconds, 2 * self.call_seconds)

    def start(self) -> None:
        """Start the thread that waits for signals. Called in the main thread."""
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
        """Wait for a signal, until a time of `time.monotonic`.

        Returns:
          Number of the signal; 0 after a call of `end`, None on timeout.
        """
        while (left := until - time.monotonic()) > 0:
            self._read.settimeout(None if left == math.inf else left)
            try:
                # Python writes one byte per signal; b"" means that `end` was called.
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
    """Call `newest`, and return its result; None if the disk hangs."""
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(newest()), daemon=True)
    thread.start()
    thread.join(LISTING_SECONDS)
    return found[0] if found else None


class StopSignals:
    """Context manager: a first signal stops the program gracefully, a second at once.

    The first signal raises `Interrupted`, unless `defer` is set: then `requested`
    returns True. All processes stop at the same step, even if only one received a
    signal.

    Attributes:
      signum: Number of the first signal, None before. It is SIGTERM for SIGUSR1, which
        batch systems send as an early warning.
      agreed: Whether all processes have agreed to stop.
      defer: Whether signals are only recorded. Set during a loop that checks
        `requested`, and at the end of the program.
      grace: Ends the process if it does not stop in time.
    """

    def __init__(self) -> None:
        self.signum: int | None = None
        self.agreed, self._num_calls = False, 0
        self.defer = False
        self.grace = Grace()
        self._entered = False

    def requested(self) -> bool:
        """Whether to stop now. All processes must call this at the same steps."""
        here = cluster.current()
        if here.num == 1:
            return self.signum is not None
        self._num_calls += 1
        if here.should_stop(self._num_calls) and not self.agreed:
            received = [one for one in here.gather(self.signum) if one is not None]
            # The platform may notify JAX of a preemption without sending a signal.
            self.signum = received[0] if received else signal.SIGTERM
            self.agreed = True
        return self.agreed

    def __enter__(self) -> "StopSignals":
        # Python allows setting signal handlers only in the main thread.
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
        # Keep a hook that other code has installed since; that hook may call this one.
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
            return  # Other code had set the alarm.
        if not self.defer:
            raise Interrupted(
                self.signum, "no step was finished yet, so no progress is lost"
            )
        cluster.current().request_stop()
        # `print` is not reentrant, and the signal may have interrupted it.
        text = f"\n{self._name}: saving, then stopping; a second signal stops at once\n"
        with contextlib.suppress(OSError):
            os.write(2, text.encode())

    def _repeat(self, swallowed: "sys.UnraisableHookArgs") -> None:
        """`sys.unraisablehook` that lets a timer raise a swallowed `Interrupted` again.

        Python swallows exceptions in destructors and in callbacks of the garbage
        collector, such as JAX's callback. The timer's signal, SIGALRM, is not counted
        by `Grace`.
        """
        if self._entered and swallowed.exc_type is Interrupted:
            signal.setitimer(signal.ITIMER_REAL, AGAIN_SECONDS)
        else:
            self._unraisable(swallowed)
