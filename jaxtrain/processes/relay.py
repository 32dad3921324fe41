"""Relays between JAX's clients and its coordination service, which trusts anybody.

The service, in process 0, and the relays, in the others, listen at Unix sockets in
folders that only this user may enter, and only until JAX has connected: no other
program can reach them. What JAX sends goes over the connections that the processes made
when they met, where each had to show the token of the run.

JAX's client aborts its process (SIGABRT) from C++ as soon as its connection breaks, and
Python cannot prevent that. A relay keeps it open when process 0 vanishes: `peers` then
ends the process in order, long before JAX's own heartbeat runs out.
"""

import contextlib
import socket
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator

RETRY_SECONDS = 0.05
# What process 0 sends once JAX's service is behind a connection.
READY = b"\n"
# The path of a Unix socket has at most 107 bytes.
MAX_FOLDER = 70


@contextlib.contextmanager
def private_path() -> Iterator[str]:
    """Make a path for a Unix socket, in a new folder that only this user may enter."""
    long = len(tempfile.gettempdir()) > MAX_FOLDER
    with tempfile.TemporaryDirectory(
        prefix="jaxtrain-", dir="/tmp" if long else None, ignore_cleanup_errors=True
    ) as folder:
        yield f"{folder}/jax"


def serve(path: str, connections: Iterable[socket.socket]) -> None:
    """Pass on, in process 0, what comes from the other processes to JAX's service.

    Args:
      path: Where the service listens, now or soon.
      connections: To each of the other processes.
    """
    for connection in connections:
        threading.Thread(target=_serve, args=(path, connection), daemon=True).start()


def _serve(path: str, connection: socket.socket) -> None:
    while True:
        service = socket.socket(socket.AF_UNIX)
        try:
            service.connect(path)
            break
        except OSError:
            service.close()
            time.sleep(RETRY_SECONDS)  # It does not listen yet.
    with contextlib.suppress(OSError):
        connection.sendall(READY)
    _relay(connection, service)


def is_ready(connection: socket.socket) -> bool:
    """Whether JAX's service is behind the connection to process 0, once that is known.

    JAX gives a connection up after seconds without an answer, so it must not begin one
    before. False: process 0 has ended.
    """
    try:
        return connection.recv(len(READY)) == READY
    except OSError:
        return False


def start(path: str, connection: socket.socket) -> None:
    """Pass on what JAX's client, which connects once, sends to process 0.

    Args:
      path: Where to listen for it.
      connection: To process 0.
    """
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(1)

    def wait() -> None:
        with listener:
            client = listener.accept()[0]
        _relay(client, connection)

    threading.Thread(target=wait, daemon=True).start()


def _relay(near: socket.socket, far: socket.socket) -> None:
    """Pass bytes on both ways; keep the near end open when the far one breaks."""
    with near, far:
        threading.Thread(target=_pass_on, args=(far, near), daemon=True).start()
        _pass_on(near, far)
        with contextlib.suppress(OSError):
            far.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(OSError):
            while near.recv(65536):
                pass


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    """Pass bytes on until one of the two ends; closes neither."""
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
