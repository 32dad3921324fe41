"""A relay between JAX and its coordinator in process 0, which may vanish.

JAX's client aborts its process (SIGABRT) from C++ as soon as the connection to the
coordinator breaks, and Python cannot prevent that. So JAX talks to a relay in its own
process, which keeps JAX's connection open when the one to the coordinator breaks.
`peers` then ends the process in order, long before JAX's own heartbeat runs out.
"""

import contextlib
import socket
import threading
import time

RETRY_SECONDS = 0.05


def start(host: str, port: int) -> str:
    """Relay connections to the coordinator, for as long as the process lives.

    Args:
      host: where the coordinator listens, now or soon.
      port: likewise.

    Returns:
      The address, of loopback, to connect to in its place.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=_serve, args=(listener, (host, port)), daemon=True).start()
    return f"127.0.0.1:{listener.getsockname()[1]}"


def _serve(listener: socket.socket, address: tuple[str, int]) -> None:
    while True:
        near = listener.accept()[0]
        threading.Thread(target=_connect, args=(near, address), daemon=True).start()


def _connect(near: socket.socket, address: tuple[str, int]) -> None:
    while True:
        try:
            far = socket.create_connection(address)
            break
        except OSError:
            time.sleep(RETRY_SECONDS)  # It does not listen yet.
    with near, far:
        threading.Thread(target=_pass_on, args=(far, near), daemon=True).start()
        _pass_on(near, far)
        with contextlib.suppress(OSError):
            far.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(OSError):
            # The coordinator is gone: keep JAX's side open all the same.
            while near.recv(65536):
                pass


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    """Pass bytes on until one of the two ends; closes neither."""
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
