"""Ends a run that hangs: in a dead device, a lost file system, a stuck data worker."""

import contextlib
import faulthandler
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator

from jaxtrain.console import tell
from jaxtrain.errors import START_AGAIN
from jaxtrain.processes import cluster

# What a save may take, however short the steps are: storage may be slow.
LONG_SECONDS = 1800.0
# Head start of the watchdogs of other processes: when process 0 ends, JAX aborts them
# within a second.
LINGER_SECONDS = 5.0


class Watchdog:
    """While entered, ends the process if it is not told in time that a step is done.

    Args:
      seconds: between two steps, or two batches of an evaluation; None: for ever.
      compiling: tells of compilation, here or in another process, which is given all
        the time it takes. Of several processes one may load its data for longer: the
        first step may take as long as a save.
    """

    def __init__(self, seconds: float | None, compiling: Callable[[], bool]):
        self._seconds = math.inf if seconds is None else seconds
        self._long = max(self._seconds, LONG_SECONDS)
        self._limit = self._seconds if cluster.current().num == 1 else self._long
        self._compiling = compiling
        self._at = time.monotonic()
        self._done = threading.Event()

    def beat(self) -> None:
        """Note that the run makes progress."""
        self._at = time.monotonic()

    def step_done(self) -> None:
        """Note that the devices have completed a step."""
        self.beat()
        self._limit = self._seconds

    @contextlib.contextmanager
    def saving(self) -> Iterator[None]:
        """Give what is inside the time of a save."""
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
        tell(
            f"error: no step was done for {limit:g} s (train.step_timeout_seconds); "
            "the same command goes on from the last checkpoint. What each thread was "
            "doing:"
        )
        faulthandler.dump_traceback(sys.stderr, all_threads=True)
        here = cluster.current()
        if here.num > 1 and here.index == 0:
            time.sleep(LINGER_SECONDS)
        os._exit(START_AGAIN)
