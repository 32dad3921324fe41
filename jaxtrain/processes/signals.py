"""SIGINT, SIGTERM, SIGUSR1: at the first the run saves and stops, then at once."""

import contextlib
import os
import signal
import sys
import threading
from types import FrameType, TracebackType
from typing import Any

from jaxtrain.errors import Interrupted
from jaxtrain.processes import peers
from jaxtrain.processes.grace import Grace

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
# How long Python may take to leave a destructor that swallowed an `Interrupted`.
AGAIN_SECONDS = 0.01


def ignore() -> None:
    """Ignore signals from now on.

    Data workers call this, as the main process ends them; and the program does when all
    is done: a copy of the signal may still arrive while the processes end together.
    """
    for signum in SIGNALS:
        signal.signal(signum, signal.SIG_IGN)


class StopSignals:
    """While entered, a signal ends the program in order; a second one, at once.

    As long as there is nothing to save it raises `Interrupted`; then it is remembered.
    Of several processes each stops where the others do, whichever got the signal.

    Attributes:
      signum: the signal's number, or None; SIGUSR1, which batch systems send ahead of
        the end, counts as SIGTERM.
      defer: set once there is something to save, and a loop that asks `requested`; and
        when all is done.
      grace: ends the program if it does not end in order.
    """

    def __init__(self) -> None:
        self.signum: int | None = None
        self.defer = False
        self.grace = Grace(SIGNALS)
        self._previous: dict[int, Any] = {}
        self._entered = False

    def requested(self) -> bool:
        """Whether to stop here; all processes ask at the same places."""
        others = peers.current()
        if others is None:
            return self.signum is not None
        agreed = others.stop(self.signum)
        self.signum = agreed or self.signum
        return agreed is not None

    def __enter__(self) -> "StopSignals":
        # Python allows handlers in the main thread alone; elsewhere the caller's hold.
        if threading.current_thread() is threading.main_thread():
            self.grace.start()
            self._previous = {s: signal.signal(s, self._handle) for s in SIGNALS}
            self._previous[signal.SIGALRM] = signal.signal(signal.SIGALRM, self._act)
            self._unraisable = sys.unraisablehook
            sys.unraisablehook = self._repeat
            self._entered = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._previous:
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
