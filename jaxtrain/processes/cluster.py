"""Agreement of the processes of a run, over JAX's coordination service.

All methods but `request_stop` are collective: all processes call them in
the same order, from the main thread.
"""

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn

from jaxtrain.console import tell
from jaxtrain.errors import StartAgainError

if TYPE_CHECKING:
    import numpy as np

# Longest wait for another process, which may prepare data or save.
WAIT_SECONDS = 7 * 24 * 3600.0


class Cluster:
    """The processes of a run.

    Attributes:
      index: Number of this process, from 0.
      num: Number of processes; 1 needs no network.
      heartbeat_seconds: Silence after which JAX counts a process as lost.
    """

    def __init__(
        self,
        index: int = 0,
        num: int = 1,
        heartbeat_seconds: float = 0.0,
        notify: Callable[[], None] = lambda: None,
    ):
        """Describe the processes.

        Args:
          index: Number of this process.
          num: Number of processes.
          heartbeat_seconds: Silence after which JAX counts a process as lost.
          notify: Gives JAX the notice of a preemption; async-signal-safe.
        """
        self.index, self.num = index, num
        self.heartbeat_seconds, self._notify = heartbeat_seconds, notify
        self._exchanges = 0
        self._stopping = self._announced = False
        # Whether the others cannot be reached: not yet connected, or lost.
        self._cut_off = False

    def barrier(self) -> None:
        """Wait until all processes have come here."""
        self.gather(None)

    def gather(self, value: Any) -> list[Any]:
        """Return the JSON values of all processes, by their number.

        It waits without a device until all are here, so that one may compile or save
        for longer than a collective waits. If another process has failed instead, this
        one ends with its message and exit code.

        Raises:
          StartAgainError: Another process was lost.
        """
        if self.num == 1:
            return [value]
        try:
            told = self._exchange({"value": value}, WAIT_SECONDS)
        except RuntimeError as error:
            self._cut_off = True
            raise StartAgainError(
                "another process was lost; the same command goes on from the last "
                f"checkpoint ({str(error).splitlines()[0]})"
            ) from None
        for process, message in enumerate(told):
            if "code" in message:
                reason = message["reason"]
                tell(f"error: process {process} ended, so this one does: {reason}")
                self._end(message["code"])
        return [message["value"] for message in told]

    def should_stop(self, step: int) -> bool:
        """Whether all processes stop here, as one of them was asked to.

        Args:
          step: Number of the call, from 1.
        """
        if self.num == 1 or self._stopping:
            return self._stopping
        from jax.experimental import multihost_utils

        self._stopping = multihost_utils.reached_preemption_sync_point(step)
        return self._stopping

    def request_stop(self) -> None:
        """Have all processes stop at one of their next calls of `should_stop`."""
        self._notify()

    def announce(self, code: int, reason: str, seconds: float | None = None) -> bool:
        """Announce to the others, once they `gather`, that this process fails.

        Args:
          code: Exit code, which they take over.
          reason: Message for the user.
          seconds: Longest wait for them. Defaults to that for a heartbeat.

        Returns:
          Whether they were told; False: they wait elsewhere, or were lost.
        """
        if self.num > 1 and not (self._announced or self._cut_off):
            limit = self.heartbeat_seconds if seconds is None else seconds
            try:
                self._exchange({"code": code, "reason": reason}, limit)
                self._announced = True
            except Exception:
                self._cut_off = True
        return self._announced

    def confirm_lost(self, reason: str) -> bool:
        """Whether a failure of this process may come from the loss of another one.

        Otherwise the others are told that this one fails, with exit code 1.
        """
        # Before JAX itself aborts this process for the missing heartbeats.
        return self.num > 1 and not self.announce(1, reason, self.heartbeat_seconds / 2)

    def leave(self, code: int, reason: str) -> None:
        """End this process with an error, and the others, if there are any."""
        if self.num == 1:
            return
        if not self.announce(code, reason):
            _flush()
            os._exit(code)  # JAX's shutdown would wait for the others.
        self._end(code)

    @contextlib.contextmanager
    def connecting(self) -> Iterator[None]:
        """Have a failure inside end this process without the others."""
        self._cut_off = True
        yield
        self._cut_off = False

    def _end(self, code: int) -> NoReturn:
        """End together with the others, which do the same."""
        import jax

        _flush()
        with contextlib.suppress(Exception):
            jax.distributed.shutdown()
        os._exit(code)

    def _exchange(self, message: dict[str, Any], seconds: float) -> list[Any]:
        import jax
        import numpy as np
        from orbax.checkpoint import multihost

        self._exchanges += 1
        key = f"jaxtrain-{self._exchanges}"
        multihost.get_barrier_sync_fn()(key=key, timeout_ms=int(1000 * seconds))
        text = np.frombuffer(json.dumps(message).encode(), np.uint8)
        with jax.transfer_guard("allow"):
            sizes = _all_gather(np.array([text.size], np.int32))[:, 0]
            # Few lengths, each of which is a program.
            length = 1 << max(8, int(sizes.max() - 1).bit_length())
            rows = _all_gather(np.pad(text, (0, length - text.size)))
        return [
            json.loads(row[:size].tobytes())
            for row, size in zip(rows, sizes, strict=True)
        ]


def _all_gather(row: "np.ndarray") -> "np.ndarray":
    """Return the rows of all processes, (processes, N), by one device of each.

    `multihost_utils.process_allgather` needs as many devices in each process.
    """
    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    firsts = {device.process_index: device for device in reversed(jax.devices())}
    mesh = Mesh(np.array([firsts[index] for index in sorted(firsts)]), ("process",))
    local = jax.device_put(row[None], firsts[jax.process_index()])
    whole = jax.make_array_from_single_device_arrays(
        (len(firsts), row.size), NamedSharding(mesh, PartitionSpec("process")), [local]
    )
    everywhere = NamedSharding(mesh, PartitionSpec())
    gathered = jax.jit(_same, out_shardings=everywhere)(whole)
    return np.asarray(gathered.addressable_data(0))


def _same(x: Any) -> Any:
    return x


def _flush() -> None:
    with contextlib.suppress(OSError):
        sys.stdout.flush()


_current = Cluster()


def current() -> Cluster:
    """Return the processes of the run that this process is part of."""
    return _current


def enter(cluster: Cluster) -> None:
    """Be part of several processes from now on."""
    global _current
    _current = cluster
