"""Coordination of a save: each process writes its shards, and process 0 commits.

Each process saves in a background thread, without collectives (see `messages`). A
checkpoint is thus committed as soon as all processes have written, not at the next
synchronization of the training loop. Each process first copies its shards to host
memory (see `snapshot`). Then

1. the other processes report the digests of their shards to process 0;
2. process 0 creates the directory, and signals the other processes to write their
   shards;
3. the other processes report success or an error, and process 0 commits or removes
   the checkpoint.

Orbax's barriers are not used: if the disk of a process fails, the process never reaches
the barrier, and the other processes wait for 20 minutes.
"""

import contextlib
import itertools
import threading
from concurrent.futures import Future, wait
from typing import Any

from jaxtrain.errors import StartAgainError
from jaxtrain.processes import messages
from jaxtrain.processes.cluster import Cluster

_numbers = itertools.count(1)


class PartError(Exception):
    """Another process could not write its shards.

    Attributes:
      errno: Value of `OSError.errno` in that process, or None.
    """

    def __init__(self, index: int, errno: int | None, reason: str):
        super().__init__(f"process {index}: {reason}")
        self.errno = errno


class JointSave:
    """Coordinator of a save by all processes; does nothing for a single process.

    Each process must create a coordinator for each save, in the same order. Process 0
    calls `collect`, `start`, `join` and `settle`; the other processes call `report` and
    `written`.
    """

    def __init__(self, here: Cluster):
        self._index, self._others = here.index, range(1, here.num)
        self._name = f"jaxtrain-save-{next(_numbers)}"
        self._started, self._writing = False, list(self._others)
        self._given_up = threading.Event()

    @property
    def alone(self) -> bool:
        """Whether there is only one process."""
        return not self._others

    def collect(self, own: Any) -> list[Any]:
        """Receive the values that the processes report; return a list by process index.

        Args:
          own: Value of process 0, the caller.

        Raises:
          PartError: A process reported an error.
        """
        reports = [self._receive("report", index) for index in self._others]
        for index, report in zip(self._others, reports, strict=True):
            _check(index, report["error"])
        return [own, *(report["value"] for report in reports)]

    def start(self) -> None:
        """Signal the other processes to write; the directory must exist."""
        self._started = True
        self._send_start(True)

    def join(self) -> None:
        """Wait until the other processes have written.

        Raises:
          PartError: A process could not write.
        """
        errors = {}
        while self._writing:
            index = self._writing.pop()
            errors[index] = self._receive("written", index)
        for index in sorted(errors):
            _check(index, errors[index])

    def settle(self) -> None:
        """End a save, also after an error; wait until no other process writes."""
        with contextlib.suppress(PartError, StartAgainError):
            if self._started:
                self.join()
            else:
                self._started, self._writing = True, []
                self._send_start(False)

    def report(self, value: Any, error: dict[str, Any] | None = None) -> bool:
        """Send a value or an error to process 0; return whether to write the shards."""
        self._send("report", self._index, {"value": value, "error": error})
        return self._receive("start", self._index)

    def written(self, error: dict[str, Any] | None) -> None:
        """Notify process 0 that the shards are written, or of an error."""
        self._send("written", self._index, error)

    def give_up(self, pending: Future[None], seconds: float) -> None:
        """After a timeout, stop waiting for messages, as another process may be lost.

        Args:
          pending: Future of this process's save.
          seconds: Timeout in seconds.
        """
        if not (self.alone or wait([pending], seconds).done):
            self._given_up.set()

    def _send_start(self, value: bool) -> None:
        for index in self._others:
            self._send("start", index, value)

    def _send(self, kind: str, index: int, value: Any) -> None:
        messages.send(f"{self._name}/{kind}/{index}", value)

    def _receive(self, kind: str, index: int) -> Any:
        key = f"{self._name}/{kind}/{index}"
        return messages.receive(key, self._given_up.is_set)


def _check(index: int, error: dict[str, Any] | None) -> None:
    if error is not None:
        raise PartError(index, error["errno"], error["reason"])
