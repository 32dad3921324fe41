"""Greetings side by side: a caller that says nothing holds up nobody else."""

import contextlib
import queue
import selectors
import socket
import threading
import time
from typing import Self

from jaxtrain.processes import greeting
from jaxtrain.processes.greeting import GreetedSocket, Refusal
from jaxtrain.processes.messages import MessageError

# Greetings at once, in addition to those of the processes of the run.
MAX_STRANGERS = 64
# After a connection that could not be accepted.
PAUSE_SECONDS = 0.05


class Reception:
    """Accepts connections and greets each in a thread of its own.

    Args:
      listener: The socket that listens; it stays open.
      token: Of the run; None: callers are not authenticated.
      expected: Number of connections that the run itself makes.
    """

    def __init__(self, listener: socket.socket, token: bytes | None, expected: int):
        self._listener, self._token = listener, token
        self._limit = expected + MAX_STRANGERS
        self._lock = threading.Lock()
        # In the order of their arrival.
        self._greeted: dict[socket.socket, None] = {}
        self._closed = False
        self._found: queue.SimpleQueue[GreetedSocket | Refusal] = queue.SimpleQueue()
        self._wake, self._woken = socket.socketpair()
        self._wake.setblocking(False)
        listener.settimeout(0)
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._closed = True
            for connection in self._greeted:
                _hang_up(connection)
        self._selector.close()
        self._wake.close()
        self._woken.close()
        while not self._found.empty():
            found = self._found.get()
            if isinstance(found, GreetedSocket):
                found.connection.close()

    def next(self, deadline: float) -> GreetedSocket | Refusal | None:
        """Wait for the next process that was greeted.

        Returns:
          It, or the refusal of one that has not the token; None: none came in time.
        """
        while (left := deadline - time.monotonic()) > 0:
            with contextlib.suppress(queue.Empty):
                return self._found.get_nowait()
            for key, _ in self._selector.select(left):
                if key.fileobj is self._woken:
                    self._woken.recv(4096)
                else:
                    self._accept()
        return None

    def _accept(self) -> None:
        """Begin a greeting; where there are too many, the oldest is given up."""
        connection = None
        with contextlib.suppress(OSError):
            connection = self._listener.accept()[0]
        with self._lock:
            # Without a connection, the process may have no file descriptor left.
            if self._greeted and (
                connection is None or len(self._greeted) >= self._limit
            ):
                oldest = next(iter(self._greeted))
                del self._greeted[oldest]
                _hang_up(oldest)
            if connection is not None:
                self._greeted[connection] = None
        if connection is None:
            time.sleep(PAUSE_SECONDS)
            return
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
                # If it takes no more, the other end has enough to wake up.
                with contextlib.suppress(BlockingIOError):
                    self._wake.send(b"\n")
        if not isinstance(found, GreetedSocket):
            connection.close()


def _hang_up(connection: socket.socket) -> None:
    """End a connection that another thread waits for, which then closes it."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
