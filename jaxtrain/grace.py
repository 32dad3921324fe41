"""The time that a stopped run has to save: batch systems kill it soon after the signal.

A thread waits for the signal, as Python calls its handlers between two of its own
instructions alone: never, while the main thread waits for a device that hangs.
"""

import os
import signal
import socket
import sys
import threading
from collections.abc import Collection
from pathlib import Path

from jaxtrain.checkpointer import committed_steps
from jaxtrain.parallel import peers

# To look into a folder that may hang itself.
LOOK_SECONDS = 1.0


class Grace:
    """Between `start` and `end`, ends the process some time after a signal.

    Args:
      seconds: from the first signal.
      checkpoints: the folder of the steps.
      signals: that count; others are left alone.
    """

    def __init__(self, seconds: float, checkpoints: Path, signals: Collection[int]):
        self._seconds, self._folder, self._signals = seconds, checkpoints, signals
        self._ended = threading.Event()

    def start(self) -> None:
        """Start to wait for signals, in the main thread, which alone may."""
        self._read, self._write = socket.socketpair()
        self._write.setblocking(False)
        self._previous = signal.set_wakeup_fd(
            self._write.fileno(), warn_on_full_buffer=False
        )
        threading.Thread(target=self._watch, daemon=True).start()

    def end(self) -> None:
        signal.set_wakeup_fd(self._previous)
        self._ended.set()
        self._write.close()

    def _watch(self) -> None:
        with self._read:
            # The number of each signal; nothing: the other side was closed.
            while (number := self._read.recv(1)) and number[0] not in self._signals:
                pass
        if number and not self._ended.wait(self._seconds):
            self._leave(signal.SIGINT if number[0] == signal.SIGINT else signal.SIGTERM)

    def _leave(self, signum: int) -> None:
        code = 128 + signum
        message = (
            f"not saved within checkpoint.grace_seconds = {self._seconds:g}: the same "
            f"command goes on from {self._newest()}"
        )
        print(f"stopped: {message}", file=sys.stderr, flush=True)
        others = peers.current()
        if others is not None:
            others.leave(code, message)
        os._exit(code)

    def _newest(self) -> str:
        """Name the last committed step, unless the disk is what hangs."""
        found: list[int] = []

        def look() -> None:
            found.append(max(committed_steps(self._folder), default=0))

        thread = threading.Thread(target=look, daemon=True)
        thread.start()
        thread.join(LOOK_SECONDS)
        return f"step {found[0]}" if found else "the last checkpoint"
