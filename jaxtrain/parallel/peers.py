"""The other processes of a run: stop where they stop, and end when one of them ends.

What a process tells the others goes into the key-value store of JAX's coordinator, one
key an event, and a thread of each waits for the next. It costs the loop nothing.
"""

import itertools
import json
import os
import sys
import threading
import time
from typing import Any, NoReturn

from jaxtrain.errors import START_AGAIN

# Seconds for a process to end by itself, once another has.
GRACE = 5.0
# For the threads of all processes to answer.
ANSWER_SECONDS = 60.0
FOREVER_MS = 2**31 - 1

_EVENT, _ASKED = "jaxtrain/event", "jaxtrain/asked"


class Peers:
    """The link of this process to the others.

    Attributes:
      agreed: the signal at which all processes have agreed to stop, or None.
    """

    def __init__(self, client: Any, index: int):
        self.agreed: int | None = None
        self._client, self._index = client, index
        self._lock = threading.Lock()
        self._asked = 0
        self._stop_at = 0
        self._told = False
        self._leaving = threading.Event()
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
            self._tell({"signum": signum})
        with self._lock:
            self._asked += 1
            return self.agreed if self._asked >= self._stop_at else None

    def leave(self, code: int, message: str) -> None:
        """End this process now, and the others soon, which could only wait for it."""
        self._leaving.set()
        self._tell({"process": self._index, "code": code, "message": message})
        self._end(code)

    def join(self) -> None:
        """Wait for the thread, which ends when JAX has hung up."""
        self._thread.join()

    def _tell(self, event: dict[str, Any]) -> None:
        for i in itertools.count():
            try:
                self._client.key_value_set(f"{_EVENT}/{i}", json.dumps(event))
                return
            except RuntimeError as error:
                if "ALREADY_EXISTS" not in str(error):
                    return  # The coordinator is gone: JAX ends this process.

    def _watch(self) -> None:
        for i in itertools.count():
            try:
                text = self._client.blocking_key_value_get(f"{_EVENT}/{i}", FOREVER_MS)
            except RuntimeError:
                return  # The run has ended.
            event = json.loads(text)
            if "signum" not in event:
                self._follow(**event)
            elif self.agreed is None:
                self._agree(event["signum"])

    def _agree(self, signum: int) -> None:
        """Stop where the process that is furthest asks next; none goes on meanwhile."""
        timeout = int(1000 * ANSWER_SECONDS)
        with self._lock:
            try:
                self._client.key_value_set(f"{_ASKED}/{self._index}", str(self._asked))
                self._client.wait_at_barrier(_ASKED, timeout)
                answers = self._client.key_value_dir_get(_ASKED)
            except RuntimeError:
                self._end(START_AGAIN, "another process does not answer")
            self._stop_at = 1 + max(int(asked) for _, asked in answers)
            self.agreed = signum

    def _follow(self, process: int, code: int, message: str) -> None:
        """End as another process did, unless this one is about to end by itself."""
        if process != self._index and not self._leaving.wait(GRACE):
            self._end(code, f"process {process} ended, so this one does: {message}")

    def _end(self, code: int, message: str = "") -> NoReturn:
        """End at once, together, without JAX's farewell, which waits for all."""
        if message:
            print(f"error: {message}", file=sys.stderr)
        try:
            self._client.wait_at_barrier("jaxtrain/leave", int(2000 * GRACE))
        except RuntimeError:
            if code == 1:  # Of an unexpected error: this is where it came from.
                print("error: another process ended without a word", file=sys.stderr)
                code = START_AGAIN
        if self._index == 0:
            time.sleep(1)  # JAX aborts the processes that outlive the coordinator.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


_current: Peers | None = None


def connect(client: Any, index: int) -> Peers:
    """Watch the other processes from now on.

    Args:
      client: of JAX's coordinator.
      index: of this process.
    """
    global _current
    _current = Peers(client, index)
    return _current


def current() -> Peers | None:
    """Return the link to the other processes; None: this process is alone."""
    return _current
