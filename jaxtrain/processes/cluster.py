"""Coordination of the processes of a run, over JAX's coordination service.

All methods except `request_stop` are collective: all processes call them in the same
order, from the main thread.
"""

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn

from jaxtrain.console import print_stderr
from jaxtrain.errors import StartAgainError

if TYPE_CHECKING:
    import numpy as np

# Longest wait in seconds for another process, which may be preparing data or saving.
WAIT_SECONDS = 7 * 24 * 3600.0


class Cluster:
    """The processes of a run.

    Attributes:
      index: Number of this process, from 0.
      num: Number of processes; 1 needs no network.
      heartbeat_seconds: Seconds without heartbeat after which JAX considers a process
        lost.
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
          heartbeat_seconds: Seconds without heartbeat after which JAX considers a
            process lost.
          notify: Function that notifies JAX of a preemption; async-signal-safe.
        """
        self.index, self.num = index, num
        self.heartbeat_seconds, self._notify = heartbeat_seconds, notify
        self._exchanges = 0
        self._stopping = self._announced = False
        # Whether other processes are unreachable: not yet connected, or lost.
        self._cut_off = False

    def barrier(self) -> None:
        """Wait for all processes."""
        self.gather(None)

    def gather(self, value: Any) -> list[Any]:
        """Gather the JSON values of all processes, by process index.

        Waiting does not use a device, so that a process may compile or save for longer
        than the timeout of a collective. If another process has failed, this process
        exits with the message and exit code of the failed process.

        Raises:
          StartAgainError: Another process was lost.
        """
        if self.num == 1:
            return [value]
        try:
            messages = self._exchange({"value": value}, WAIT_SECONDS)
        except RuntimeError as error:
            self._cut_off = True
            raise StartAgainError(
                f"lost connection to another process ({str(error).splitlines()[0]}); "
                "the same command resumes from the last checkpoint"
            ) from None
        for process, message in enumerate(messages):
            if "code" in message:
                reason = message["reason"]
                print_stderr(
                    f"error: stopping because process {process} ended: {reason}"
                )
                self._end(message["code"])
        return [message["value"] for message in messages]

    def should_stop(self, step: int) -> bool:
        """Whether all processes stop here, because one received a signal.

        Args:
          step: Number of this call, counted from 1.
        """
        if self.num == 1 or self._stopping:
            return self._stopping
        from jax.experimental import multihost_utils

        self._stopping = multihost_utils.reached_preemption_sync_point(step)
        return self._stopping

    def request_stop(self) -> None:
        """Make all processes stop at one of their next calls of `should_stop`."""
        self._notify()

    def announce(self, code: int, reason: str, seconds: float | None = None) -> bool:
        """Report a failure of this process to all others, at their next `gather`.

        Args:
          code: Exit code of all processes.
          reason: Message for the user.
          seconds: Maximum wait for the other processes, in seconds. Defaults to the
            heartbeat timeout.

        Returns:
          Whether all processes received the report; False if a process was lost, or
            waits outside of `gather`.
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
        """Whether a failure of this process may be caused by the loss of another one.

        Otherwise the failure is reported to the other processes, with exit code 1.
        """
        # Wait for half of the heartbeat timeout, before JAX aborts this process.
        return self.num > 1 and not self.announce(1, reason, self.heartbeat_seconds / 2)

    def leave(self, code: int, reason: str) -> None:
        """Exit all processes with an error."""
        if self.num == 1:
            return
        if not self.announce(code, reason):
            _flush()
            os._exit(code)  # Skip JAX's shutdown, which waits for all processes.
        self._end(code)

    @contextlib.contextmanager
    def connecting(self) -> Iterator[None]:
        """Context manager: a failure inside exits only this process."""
        self._cut_off = True
        yield
        self._cut_off = False

    def _end(self, code: int) -> NoReturn:
        """Exit together with the other processes, which call this method, too."""
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
            # Round up to a power of two, as each new length needs a compilation.
            length = 1 << max(8, int(sizes.max() - 1).bit_length())
            rows = _all_gather(np.pad(text, (0, length - text.size)))
        return [
            json.loads(row[:size].tobytes())
            for row, size in zip(rows, sizes, strict=True)
        ]


def _all_gather(row: "np.ndarray") -> "np.ndarray":
    """All-gather an array (N,) per process to (processes, N), by a device per process.

    `multihost_utils.process_allgather` requires equal device counts per process.
    """
    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    firsts = {device.process_index: device for device in reversed(jax.devices())}
    mesh = Mesh(np.array([firsts[index] for index in sorted(firsts)]), ("process",))
    local = jax.device_put(row[None], firsts[jax.process_index()])
    stacked = jax.make_array_from_single_device_arrays(
        (len(firsts), row.size), NamedSharding(mesh, PartitionSpec("process")), [local]
    )
    everywhere = NamedSharding(mesh, PartitionSpec())
    gathered = jax.jit(_same, out_shardings=everywhere)(stacked)
    return np.asarray(gathered.addressable_data(0))


def _same(x: Any) -> Any:
    return x


def _flush() -> None:
    with contextlib.suppress(OSError):
        sys.stdout.flush()


_current = Cluster()


def current() -> Cluster:
    """Cluster of this process."""
    return _current


def enter(cluster: Cluster) -> None:
    """Set the cluster of this process."""
    global _current
    _current = cluster
