"""SIGINT, SIGTERM, SIGUSR1: at the first the run saves and stops, then at once."""

import os
import signal
import threading
import time
from types import FrameType, TracebackType
from typing import Any

from jaxtrain.errors import Interrupted
from jaxtrain.grace import Grace
from jaxtrain.parallel import peers

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)

# A signal to the process group often comes twice, passed on by a parent.
REPEAT_SECONDS = 1.0


def ignore() -> None:
    """Leave signals to the main process: for data workers, which it ends itself."""
    for signum in SIGNALS:
        signal.signal(signum, signal.SIG_IGN)


class StopSignals:
    """While entered, a signal ends the run in order.

    As long as there is nothing to save it raises `Interrupted`; then it is remembered.
    Of several processes each stops where the others do, whichever got the signal.

    Args:
      grace: ends the run if that takes too long; None: it takes what it takes.

    Attributes:
      signum: the signal's number, or None; SIGUSR1, which batch systems send ahead of
        the end, counts as SIGTERM.
      defer: set once there is something to save, and a loop that asks `requested`.
    """

    def __init__(self, grace: Grace | None = None) -> None:
        self._grace = grace
        self.signum: int | None = None
        self.defer = False
        self._at = 0.0
        self._previous: dict[int, Any] = {}

    def requested(self) -> bool:
        """Tell whether to stop here; all processes ask at the same places."""
        others = peers.current()
        if others is None:
            return self.signum is not None
        agreed = others.stop(self.signum)
        self.signum = agreed or self.signum
        return agreed is not None

    def __enter__(self) -> "StopSignals":
        # Python allows handlers in the main thread alone; elsewhere the caller's hold.
        if threading.current_thread() is threading.main_thread():
            self._previous = {s: signal.signal(s, self._handle) for s in SIGNALS}
            if self._grace is not None:
                self._grace.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._previous and self._grace is not None:
            self._grace.end()
        for signum, handler in self._previous.items():
            signal.signal(signum, handler)

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self.signum is not None:
            if now - self._at > REPEAT_SECONDS:
                os._exit(1)
            return
        name = signal.Signals(signum).name
        if signum == signal.SIGUSR1:
            signum = signal.SIGTERM
        self.signum, self._at = signum, now
        if not self.defer:
            raise Interrupted(signum, "the run had not begun; nothing was lost")
        # Not print: it may be what the signal came into.
        os.write(2, f"\n{name}: saving, then stopping; again: stop at once\n".encode())
