"""SIGINT and SIGTERM: at the first the run saves and stops, at the second at once."""

import os
import signal
import sys
import threading
from types import FrameType, TracebackType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopSignals:
    """While entered, remembers the first signal instead of dying of it.

    Attributes:
      signum: the signal's number, or None.
    """

    def __init__(self) -> None:
        self.signum: int | None = None
        self._previous: dict[int, Any] = {}

    def requested(self) -> bool:
        return self.signum is not None

    def __enter__(self) -> "StopSignals":
        # Python allows handlers in the main thread alone; elsewhere the caller's hold.
        if threading.current_thread() is threading.main_thread():
            self._previous = {s: signal.signal(s, self._handle) for s in SIGNALS}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for signum, handler in self._previous.items():
            signal.signal(signum, handler)

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        if self.signum is not None:
            os._exit(128 + signum)
        self.signum = signum
        name = signal.Signals(signum).name
        print(f"\n{name}: saving, then stopping; again: stop at once", file=sys.stderr)
