"""A save by all processes: each writes its shards, process 0 commits.

It runs in the background thread of each process, without collectives (`messages`), so
that a checkpoint is committed as soon as the slowest process has written, and not only
where the processes meet next. Each process has copied its shards at the step; then

1. the others report the digests of their shards to process 0;
2. process 0 makes the folder and lets them start to write;
3. they report that they have written, or why not, and process 0 commits or removes.

Orbax's own barriers are not used: a process whose disk has failed never comes to them,
and the others would wait for 20 minutes.
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
      errno: Error number of the system, if it has one.
    """

    def __init__(self, index: int, errno: int | None, reason: str):
        super().__init__(f"process {index}: {reason}")
        self.errno = errno


class JointSave:
    """Agreement of the processes on one save; one process agrees with itself.

    All processes must create it at the same place. Process 0 calls `collect`, `start`,
    `join` and `settle`; the others `report` and `written`.
    """

    def __init__(self, here: Cluster):
        self._index, self._others = here.index, range(1, here.num)
        self._name = f"jaxtrain-save-{next(_numbers)}"
        self._started, self._writing = False, list(self._others)
        self._given_up = threading.Event()

    @property
    def alone(self) -> bool:
        """Whether there is one process."""
        return not self._others

    def collect(self, own: Any) -> list[Any]:
        """Return the reports of all processes, by their number.

        Raises:
          PartError: A process could not make its report.
        """
        reports = [self._receive("report", index) for index in self._others]
        for index, report in zip(self._others, reports, strict=True):
            _check(index, report["error"])
        return [own, *(report["value"] for report in reports)]

    def start(self) -> None:
        """Let the others write: the folder is there."""
        self._started = True
        self._tell_others(True)

    def join(self) -> None:
        """Wait until the others have written.

        Raises:
          PartError: One of them could not.
        """
        errors = {}
        while self._writing:
            index = self._writing.pop()
            errors[index] = self._receive("written", index)
        for index in sorted(errors):
            _check(index, errors[index])

    def settle(self) -> None:
        """After a failure, see that no other process writes or waits."""
        with contextlib.suppress(PartError, StartAgainError):
            if self._started:
                self.join()
            else:
                self._started, self._writing = True, []
                self._tell_others(False)

    def report(self, value: Any, error: dict[str, Any] | None = None) -> bool:
        """Report to process 0; whether to write then."""
        self._send("report", self._index, {"value": value, "error": error})
        return self._receive("start", self._index)

    def written(self, error: dict[str, Any] | None) -> None:
        """Report to process 0 that this one has written, or why it could not."""
        self._send("written", self._index, error)

    def give_up(self, pending: Future[None], seconds: float) -> None:
        """Give up a save, after some time, as another process may be lost.

        Args:
          pending: This process's part of the save.
          seconds: Longest wait for it.
        """
        if not (self.alone or wait([pending], seconds).done):
            self._given_up.set()

    def _tell_others(self, value: bool) -> None:
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
