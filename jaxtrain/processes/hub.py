"""The message hub in process 0: it passes what one process says on to all.

Each, process 0 too, has one connection to the hub. When the run or a process ends, the
hub tells all; each answers by closing its connection, so that none misses it.
"""

import math
import socket
import threading
import time
from collections import deque
from typing import Any

from jaxtrain.processes.links import JUNK, Links
from jaxtrain.processes.messages import TO_HUB, MessageError

# For all processes to close their connections at the end, though one's CPU may stall.
ANSWER_SECONDS = 5.0
# Values of a process that wait for those of the others; each waits for one.
MAX_WAITING = 16


class Hub:
    """A thread of process 0.

    Args:
      connections: to each process of the run, by its number.
      heartbeat: seconds of silence after which a process counts as lost.
    """

    def __init__(self, connections: dict[int, socket.socket], heartbeat: float):
        self._num = len(connections)
        self._links = Links(connections, TO_HUB, heartbeat)
        self._signum: int | None = None
        self._asked: dict[int, int] = {}
        self._values: list[deque[Any]] = [deque() for _ in connections]
        self._done: set[int] = set()
        self._until = math.inf
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def join(self, seconds: float) -> None:
        """Wait until all processes have got the last message."""
        self._thread.join(seconds)

    def _run(self) -> None:
        while len(self._links) and time.monotonic() < self._until:
            for index, message in self._links.poll():
                try:
                    self._handle(index, **message)
                except MessageError as error:
                    self._links.close(index)
                    self._say_last("lost", process=index, how=f"{JUNK} ({error})")

    def _handle(self, index: int, kind: str, **values: Any) -> None:
        if kind == "signal" and self._signum is None:
            self._signum = values["signum"]
            self._links.send("ask")
        elif kind == "asked":
            if self._signum is None or index in self._asked:
                raise MessageError("an answer to nothing")
            self._asked[index] = values["times"]
            if len(self._asked) == self._num:
                # The place that the furthest comes to next: none has passed it.
                at = 1 + max(self._asked.values())
                self._links.send("stop", at=at, signum=self._signum)
        elif kind == "gather":
            if len(self._values[index]) >= MAX_WAITING:
                raise MessageError("more values than it waits for")
            self._values[index].append(values["value"])
            if all(self._values):
                gathered = [told.popleft() for told in self._values]
                self._links.send("gathered", values=gathered)
        elif kind == "report":
            self._links.send("reported", to=0, **values)
        elif kind == "done":
            self._done.add(index)
            if len(self._done) == self._num:
                self._say_last("done")
        elif kind == "end":
            self._links.close(index)
            self._say_last("end", process=index, **values)
        elif kind == "lost":
            self._say_last("lost", process=index, **values)

    def _say_last(self, kind: str, **values: Any) -> None:
        """Send the last message to all; what follows it is not passed on."""
        if self._until == math.inf:
            self._until = time.monotonic() + ANSWER_SECONDS
            self._links.send(kind, **values)
