"""Connections between processes that stay open, and the message hub in process 0.

Each process, process 0 too, has one connection to the hub, which passes what one says
on to all. When the run or a process ends, the hub tells all; each answers by closing
its connection, so that none misses it.

When a process is killed, the system closes its connections, and the other end notices
at once. A process that is suspended, or whose machine is gone, sends no heartbeats.
"""

import contextlib
import math
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from jaxtrain.processes import messages
from jaxtrain.processes.messages import TO_HUB, Fields, MessageError

# Longest pause between two beats, and wait for a line to be taken.
BEAT_SECONDS = 1.0
SEND_SECONDS = 5.0
# For all processes to close their connections at the end, though one's CPU may stall.
ANSWER_SECONDS = 5.0
# Values of a process that wait for those of the others; each waits for one.
MAX_WAITING = 16
# What is told of a process that sends what is no message.
JUNK = "sent what no process of a run sends"


@dataclass
class _Link:
    """A connection, when it last received something, and the start of a line."""

    socket: socket.socket
    heard: float = field(default_factory=time.monotonic)
    rest: bytearray = field(default_factory=bytearray)


class Links:
    """Connections to other processes that stay open, by their number.

    One thread may `poll` and `close`, others may send meanwhile.

    Args:
      connections: to be kept from now on.
      kinds: The messages that the other ends may send.
      heartbeat: seconds of silence after which a process counts as lost.
    """

    def __init__(
        self,
        connections: dict[int, socket.socket],
        kinds: Mapping[str, Fields],
        heartbeat: float,
    ):
        self._kinds = kinds
        self._links = {i: _Link(c) for i, c in connections.items()}
        self._heartbeat = heartbeat
        self._pause = min(BEAT_SECONDS, heartbeat / 4)
        self._polled = self._beaten = time.monotonic()
        self._lock = threading.Lock()
        self._selector = selectors.DefaultSelector()
        for index, connection in connections.items():
            connection.settimeout(SEND_SECONDS)
            self._selector.register(connection, selectors.EVENT_READ, index)

    def __len__(self) -> int:
        return len(self._links)

    def send(self, kind: str, /, to: int | None = None, **values: Any) -> None:
        """Send a message to one process; None: to all."""
        line = messages.encode({"kind": kind, **values})
        with self._lock:
            for index, link in self._links.items():
                if to in (None, index):
                    # If the other end has closed, `poll` will find out.
                    with contextlib.suppress(OSError):
                        link.socket.sendall(line)

    def close(self, index: int) -> None:
        with self._lock:
            link = self._links.pop(index, None)
        if link is not None:
            self._selector.unregister(link.socket)
            link.socket.close()

    def poll(self) -> list[tuple[int, dict[str, Any]]]:
        """Wait for messages, up to the next beat.

        Returns:
          From whom, and what it sent, which was checked; or {"kind": "lost", "how":
          words}, after which that connection is closed.
        """
        now = time.monotonic()
        if now - self._beaten >= self._pause:
            self._beaten = now
            self.send("beat")
        found: list[tuple[int, dict[str, Any]]] = []
        for key, _ in self._selector.select(self._pause):
            found += [(key.data, message) for message in self._read(key.data)]
        now = time.monotonic()
        # This process itself was suspended: the silence is no sign of the others'.
        if now - self._polled > self._heartbeat / 2:
            for link in self._links.values():
                link.heard = now
        self._polled = now
        for index, link in [*self._links.items()]:
            if now - link.heard > self._heartbeat:
                silence = f"was silent for {self._heartbeat:g} s"
                how = f"{silence} (parallel.heartbeat_seconds)"
                found.append((index, self._lose(index, how)))
        return found

    def _read(self, index: int) -> list[dict[str, Any]]:
        link = self._links[index]
        try:
            data = link.socket.recv(65536)
        except OSError:
            data = b""
        if not data:
            return [self._lose(index, "ended without a word")]
        link.heard = time.monotonic()
        link.rest += data
        if b"\n" not in data:
            if len(link.rest) <= messages.MAX_BYTES:
                return []
            return [self._lose(index, f"{JUNK} (longer than {messages.MAX_BYTES})")]
        *lines, link.rest = link.rest.split(b"\n")
        found: list[dict[str, Any]] = []
        try:
            for line in lines:
                found.append(messages.parse(bytes(line), self._kinds))
        except MessageError as error:
            found.append(self._lose(index, f"{JUNK} ({error})"))
        return [message for message in found if message["kind"] != "beat"]

    def _lose(self, index: int, how: str) -> dict[str, Any]:
        self.close(index)
        return {"kind": "lost", "how": how}


class Hub:
    """A thread of process 0; of each process, by its number, it has a connection."""

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
        elif kind in ("end", "lost"):
            self._links.close(index)
            self._say_last(kind, process=index, **values)

    def _say_last(self, kind: str, **values: Any) -> None:
        """Send the last message to all; what follows it is not passed on."""
        if self._until == math.inf:
            self._until = time.monotonic() + ANSWER_SECONDS
            self._links.send(kind, **values)
