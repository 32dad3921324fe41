"""Watchdog for hanging devices, file systems and data workers."""

import contextlib
import faulthandler
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator

from jaxtrain.console import print_stderr
from jaxtrain.errors import START_AGAIN
from jaxtrain.processes import cluster

# Time limit of a save in seconds, generous because storage may be slow.
LONG_SECONDS = 1800.0
# Delay in seconds before the watchdog ends process 0, so that other watchdogs report
# first: JAX aborts the other processes within a second of the end of process 0.
LINGER_SECONDS = 5.0


class Watchdog:
    """Context manager: ends the process if no step completes within a time limit.

    With several processes, the first step has the time limit of a save, because other
    processes may take longer to load their data.

    Args:
      seconds: Time limit in seconds between steps, or between batches of an evaluation;
        None for no limit.
      compiling: Function that returns whether this or another process is compiling.
        Compilations have no time limit.
    """

    def __init__(self, seconds: float | None, compiling: Callable[[], bool]):
        self._seconds = math.inf if seconds is None else seconds
        self._long = max(self._seconds, LONG_SECONDS)
        self._limit = self._seconds if cluster.current().num == 1 else self._long
        self._compiling = compiling
        self._at = time.monotonic()
        self._done = threading.Event()

    def beat(self) -> None:
        """Restart the time limit, after progress of the run."""
        self._at = time.monotonic()

    def step_done(self) -> None:
        """Restart the time limit, after a completed training step."""
        self.beat()
        self._limit = self._seconds

    @contextlib.contextmanager
    def saving(self) -> Iterator[None]:
        """Context manager: raise the time limit to at least `LONG_SECONDS`."""
        limit, self._limit = self._limit, self._long
        yield
        self.beat()
        self._limit = limit

    def __enter__(self) -> "Watchdog":
        self.beat()
        if self._seconds < math.inf:
            threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()

    def _watch(self) -> None:
        while not self._done.wait(min(1.0, self._seconds / 4)):
            if self._compiling():
                self.beat()
            limit = self._limit
            if time.monotonic() - self._at > limit:
                self._end(limit)

    def _end(self, limit: float) -> None:
        print_stderr(
            f"error: no step finished for {limit:g} s (train.step_timeout_seconds); "
            "the same command resumes from the last checkpoint. Stack traces of all "
            "threads:"
        )
        faulthandler.dump_traceback(sys.stderr, all_threads=True)
        here = cluster.current()
        if here.num > 1 and here.index == 0:
            time.sleep(LINGER_SECONDS)
        os._exit(START_AGAIN)
