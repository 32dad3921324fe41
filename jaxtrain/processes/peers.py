"""The other processes of a run: agree with them, and end when one of them ends.

A thread keeps a connection to process 0 (see `hub`), which opens before JAX connects
the processes and stays open until the program ends. The training loop does not wait
for it.
"""

import contextlib
import math
import os
import queue
import socket
import sys
import threading
from typing import Any, NoReturn

from jaxtrain.console import tell
from jaxtrain.errors import START_AGAIN
from jaxtrain.processes.hub import ANSWER_SECONDS, JUNK, Hub, Links
from jaxtrain.processes.messages import FROM_HUB, MessageError

# Seconds for a process to end by itself, once another has told that it does.
GRACE = 3.0


class Peers:
    """The link of this process to the others.

    Args:
      index: of this process.
      connections: process 0: to each of the others; else: to process 0.
      heartbeat: seconds of silence after which a process counts as lost.

    Attributes:
      stopped: the signal at which this process has stopped where the others do, or
        None.
    """

    def __init__(
        self, index: int, connections: dict[int, socket.socket], heartbeat: float
    ):
        self.stopped: int | None = None
        self._hub: Hub | None = None
        if index == 0:
            mine, its = socket.socketpair()
            self._hub = Hub({0: its, **connections}, heartbeat)
            connections = {0: mine}
        self._links = Links(connections, FROM_HUB, heartbeat)
        self._lock = threading.Lock()
        self._asked = 0
        # Whether the place to stop is being agreed on.
        self._asking = False
        self._stop_at = math.inf
        self._signum: int | None = None
        self._told = False
        self._leaving, self._over = threading.Event(), threading.Event()
        self._done = threading.Event()
        self._gathered: queue.SimpleQueue[list[Any]] = queue.SimpleQueue()
        self._reports: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self, signum: int | None) -> int | None:
        """Return the signal at which all processes stop here; None: they go on.

        All must ask at the same places of the run. The first to have got a signal tells
        the others; the place is one that none has passed.

        Args:
          signum: of the signal that this process got.
        """
        if signum is not None and not self._told:
            self._told = True
            self._links.send("signal", signum=signum)
        with self._lock:
            self._asked += 1
            if self._asked >= self._stop_at:
                self.stopped = self._signum
            return self.stopped

    def gather(self, value: Any) -> list[Any]:
        """See the function of this name."""
        self._links.send("gather", value=value)
        return self._gathered.get()

    def report(self, value: Any) -> None:
        """See the function of this name."""
        self._links.send("report", value=value)

    def reports(self) -> list[Any]:
        """See the function of this name."""
        # Nobody else takes any, and more may come meanwhile.
        return [self._reports.get() for _ in range(self._reports.qsize())]

    def leave(self, code: int, message: str) -> NoReturn:
        """See the function of this name."""
        self._leaving.set()
        self._links.send("end", code=code, message=message)
        self._thread.join(ANSWER_SECONDS)
        self._exit(code)

    def farewell(self, seconds: float) -> None:
        """Wait until all processes have come to the end of the run.

        Args:
          seconds: to wait at most; then this process ends, and so do the others.
        """
        self._links.send("done")
        if not self._done.wait(seconds):
            message = (
                f"not all processes came to the end of the run in {seconds:g} s "
                "(parallel.shutdown_seconds)"
            )
            tell(f"error: {message}")
            self.leave(START_AGAIN, message)
        self._thread.join()
        if self._hub is not None:
            self._hub.join(ANSWER_SECONDS)

    def explain(self) -> None:
        """Return if an error is of this process; end if another process has ended.

        The end of another makes collectives fail here, and the message that says so
        may arrive after their error.
        """
        if self._over.wait(ANSWER_SECONDS):
            self._thread.join()

    def _watch(self) -> None:
        while len(self._links):
            for _, message in self._links.poll():
                try:
                    self._handle(**message)
                except MessageError as error:
                    self._handle("lost", how=f"{JUNK} ({error})")

    def _handle(self, kind: str, **values: Any) -> None:
        if kind == "ask":
            if self._asking:
                raise MessageError("a question asked twice")
            self._asking = True
            self._lock.acquire()  # Until the place to stop is known, nobody goes on.
            self._links.send("asked", times=self._asked)
        elif kind == "stop":
            if not self._asking or self._stop_at < math.inf:
                raise MessageError("a place to stop that was not asked for")
            self._stop_at, self._signum = values["at"], values["signum"]
            self._lock.release()
        elif kind == "gathered":
            self._gathered.put(values["values"])
        elif kind == "reported":
            self._reports.put(values["value"])
        elif kind == "done":
            self._links.close(0)
            self._done.set()
        elif kind == "end":
            ended = f"process {values['process']} ended, so this one does"
            self._follow(values["code"], f"{ended}: {values['message']}", GRACE)
        elif kind == "lost":
            lost = f"process {values.get('process', 0)} {values['how']}"
            self._follow(START_AGAIN, f"{lost}; the same command goes on")

    def _follow(self, code: int, message: str, grace: float = 0.0) -> None:
        """End as another process did, unless this one is about to end by itself."""
        self._links.close(0)
        self._over.set()
        if not self._leaving.wait(grace):
            tell(f"error: {message}")
            self._exit(code)

    def _exit(self, code: int) -> NoReturn:
        """End at once: JAX's shutdown at the end of Python would wait for all."""
        if self._hub is not None:
            self._hub.join(ANSWER_SECONDS)
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        os._exit(code)


_current: Peers | None = None


def connect(
    index: int, connections: dict[int, socket.socket], heartbeat: float
) -> Peers:
    """Watch the other processes from now on; for the arguments see `Peers`."""
    global _current
    _current = Peers(index, connections, heartbeat)
    return _current


def current() -> Peers | None:
    """Return the link to the other processes; None: this process is alone."""
    return _current


def gather(value: Any) -> list[Any]:
    """Return the values of all processes, by their number, once all have called it.

    It takes no device: a process may wait for another's disk, however long that takes,
    where a collective would run out of time.

    Args:
      value: Value that JSON can hold.
    """
    return [value] if _current is None else _current.gather(value)


def report(value: Any) -> None:
    """Send something to process 0, and wait for nothing.

    It has come there once both have called `gather` after this.

    Args:
      value: Value that JSON can hold.
    """
    if _current is not None:
        _current.report(value)


def reports() -> list[Any]:
    """Return, in process 0, what was sent to it since the last call."""
    return [] if _current is None else _current.reports()


def leave(code: int, message: str) -> NoReturn:
    """End this process now, and the others soon, which could only wait for it."""
    if _current is not None:
        _current.leave(code, message)
    os._exit(code)
