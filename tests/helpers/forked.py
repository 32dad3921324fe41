"""Processes that `tests/helpers/fork_server.py` forks, in place of those of `Popen`.

They are children of the process of the tests, which waits for them itself and sees how
they end: signals, exit codes and output are those of any process.
"""

import atexit
import ctypes
import functools
import inspect
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PR_SET_CHILD_SUBREAPER = 36  # From linux/prctl.h.
# A thread of OpenBLAS would not outlive a fork.
ENVIRONMENT = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}


@functools.cache
def _server() -> socket.socket:
    """Start the server of this process; return the socket that reaches it."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        number = theirs.fileno()
        server = subprocess.Popen(
            [sys.executable, "-m", "tests.helpers.fork_server", str(number)],
            cwd=ROOT,
            env=ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[number],
        )

    def end() -> None:
        ours.close()
        server.wait()

    atexit.register(end)
    return ours


class Forked(subprocess.Popen[str]):
    """A process of Python, which is forked and not started anew."""

    def _execute_child(self, *args: Any) -> None:
        execute: Any = getattr(subprocess.Popen, "_execute_child")  # noqa: B009
        given = inspect.signature(execute).bind(self, *args).arguments
        python, *words = given["args"]
        assert python == sys.executable
        request = {
            "words": words,
            "folder": str(given["cwd"]),
            "environment": given["env"],
            "new_session": given["start_new_session"],
            "group": None if given["process_group"] < 0 else given["process_group"],
        }
        pipes = [given["c2pwrite"], given["errwrite"]]
        output = [ours if pipe < 0 else pipe for ours, pipe in enumerate(pipes, 1)]
        server = _server()
        socket.send_fds(server, [json.dumps(request).encode()], output)
        for pipe in pipes:
            if pipe >= 0:
                os.close(pipe)
        self.pid = int(server.recv(32))
        self._child_created = True
