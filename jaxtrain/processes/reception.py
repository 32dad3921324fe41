"""Process 0 at the meeting: who calls is greeted, then admitted or turned away."""

import contextlib
import queue
import socket
import threading
import time
from collections.abc import Iterable
from typing import Self

from jaxtrain.console import tell
from jaxtrain.errors import UserError
from jaxtrain.processes import greeting
from jaxtrain.processes.greeting import PURPOSES, GreetedSocket, Refusal
from jaxtrain.processes.messages import MessageError

# Greetings at once, in addition to those of the processes of the run.
MAX_STRANGERS = 64
# After a connection that could not be accepted.
PAUSE_SECONDS = 0.05
# Between two looks at who was greeted, while nobody new calls.
LOOK_SECONDS = 0.05
# What is sent by one connection may come later than the end of another that was ended
# after it: of a process that calls again, its first calls may still seem to be there.
ENDED_SECONDS = 2.0


class Reception:
    """Greets callers side by side, and keeps the calls of processes 1 to `num - 1`.

    Each is greeted in a thread of its own: one that says nothing holds up nobody else.

    Args:
      listener: The socket that listens; it stays open.
      token: Of the run; None: callers are not authenticated.
    """

    def __init__(self, listener: socket.socket, num: int, token: bytes | None):
        listener.settimeout(LOOK_SECONDS)
        self._listener, self._num, self._token = listener, num, token
        self._expected = [(p, i) for p in PURPOSES for i in range(1, num)]
        self._here: dict[tuple[str, int], GreetedSocket] = {}
        self._refused: dict[int, str] = {}
        self._lock = threading.Lock()
        # In the order of their arrival.
        self._greeted: dict[socket.socket, None] = {}
        self._closed = False
        self._found: queue.SimpleQueue[GreetedSocket | Refusal] = queue.SimpleQueue()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._closed = True
            for connection in self._greeted:
                _hang_up(connection)
        while not self._found.empty():
            found = self._found.get()
            if isinstance(found, GreetedSocket):
                found.connection.close()

    def gather(
        self, deadline: float, waited: str
    ) -> dict[str, dict[int, socket.socket]]:
        """Wait for the processes of the run, and tell them how that went.

        Args:
          deadline: Time by which all must be here.
          waited: How the message on those that are missing begins.

        Returns:
          For each purpose, the connections to the processes by their number.

        Raises:
          UserError: not all came in time, or two do not fit together.
        """
        expected = self._expected
        try:
            while len(self._here) < len(expected) or self._drop_gone(expected):
                found = self.next(deadline)
                if found is None:
                    self._drop_gone(expected)
                    raise UserError(waited + self._missing())
                if isinstance(found, Refusal):
                    self._turn_away(found)
                else:
                    self._admit(found)
        except UserError as error:
            for call in self._here.values():
                call.refuse(str(error))
            raise
        met: dict[str, dict[int, socket.socket]] = {}
        for purpose, index in expected:
            call = self._here[purpose, index]
            call.go()
            met.setdefault(purpose, {})[index] = call.connection
        return met

    def next(self, deadline: float) -> GreetedSocket | Refusal | None:
        """Wait for the next process that was greeted.

        Returns:
          It, or the refusal of one that has not the token; None: none came in time.
        """
        while time.monotonic() < deadline:
            with contextlib.suppress(queue.Empty):
                return self._found.get_nowait()
            self._accept()
        return None

    def _accept(self) -> None:
        """Begin a greeting; where there are too many, the oldest is given up."""
        connection = None
        try:
            connection = self._listener.accept()[0]
        except TimeoutError:
            return
        except OSError:  # The process may have no file descriptor left.
            time.sleep(PAUSE_SECONDS)
        limit = len(self._expected) + MAX_STRANGERS
        with self._lock:
            if self._greeted and (connection is None or len(self._greeted) >= limit):
                oldest = next(iter(self._greeted))
                del self._greeted[oldest]
                _hang_up(oldest)
            if connection is None:
                return
            self._greeted[connection] = None
        threading.Thread(target=self._greet, args=(connection,), daemon=True).start()

    def _greet(self, connection: socket.socket) -> None:
        found: GreetedSocket | Refusal | None = None
        try:
            deadline = time.monotonic() + greeting.PATIENCE
            found = greeting.answer(connection, self._token, deadline)
        except Refusal as refusal:
            found = refusal
        except (OSError, MessageError):
            pass  # None of ours.
        with self._lock:
            self._greeted.pop(connection, None)
            if self._closed:
                found = None
            if found is not None:
                self._found.put(found)
        if not isinstance(found, GreetedSocket):
            connection.close()

    def _admit(self, call: GreetedSocket) -> None:
        """Add a call to those that are here, in place of one that has ended."""
        index, problem = call.process, ""
        key = (call.purpose, index)
        self._drop_gone([key], ENDED_SECONDS)
        if call.of != self._num:
            problem = (
                f"process {index} was started with --num-processes {call.of}, process "
                f"0 with {self._num}"
            )
        elif not 0 < index < self._num:
            problem = f"process {index} is not one of {self._num}"
        elif key in self._here:
            problem = f"two processes were started as --process-id {index}"
        if problem:
            call.refuse(problem)
            raise UserError(problem)
        self._here[key] = call

    def _drop_gone(self, keys: Iterable[tuple[str, int]], seconds: float = 0.0) -> bool:
        """Drop the calls of processes that have ended; return whether there was one."""
        here = self._here
        gone = [key for key in keys if key in here and here[key].gone(seconds)]
        for key in gone:
            here.pop(key).connection.close()
        return bool(gone)

    def _turn_away(self, refusal: Refusal) -> None:
        """Warn, once for each number, of a process refused for lack of the token."""
        process, reason = refusal.process, refusal.reason
        if self._token is None:
            raise UserError(reason)
        # It may be anybody: what it says ends nothing here.
        if 0 < process < self._num and process not in self._refused:
            self._refused[process] = reason
            tell(f"warning: refused a caller at the coordinator's port: {reason}")

    def _missing(self) -> str:
        missing = sorted({i for p, i in self._expected if (p, i) not in self._here})
        shown = ", ".join(map(str, missing[:8])) + (", ..." if len(missing) > 8 else "")
        reasons = [self._refused[i] for i in missing if i in self._refused]
        advice = (
            "Were all started, with this --coordinator and --num-processes, and can "
            "they reach that address?"
        )
        came = f"{self._num - len(missing)} of {self._num} processes came"
        return f"{shown}: {came}. {f'Refused: {reasons[0]}' if reasons else advice}"


def _hang_up(connection: socket.socket) -> None:
    """End a connection that another thread waits for, which then closes it."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
