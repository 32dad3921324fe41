"""Communication between the processes of a run, by JAX's coordination service.

`barrier`, `gather` and `should_stop` are collective: all processes must call them in
the same order. All methods except `request_stop` are called in the main thread.
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

# Maximum wait for another process in seconds; it may be preparing data or saving.
WAIT_SECONDS = 7 * 24 * 3600.0


class Cluster:
    """The processes of a run, including this process.

    Attributes:
      index: Index of this process, from 0.
      num: Number of processes. With 1, the methods do not communicate.
      heartbeat_seconds: Time without heartbeat, in seconds, after which JAX considers a
        process lost.
    """

    def __init__(
        self,
        index: int = 0,
        num: int = 1,
        heartbeat_seconds: float = 0.0,
        notify: Callable[[], None] = lambda: None,
    ):
        """Initialize the attributes.

        Args:
          index: Index of this process, from 0.
          num: Number of processes.
          heartbeat_seconds: JAX's heartbeat timeout in seconds.
          notify: Async-signal-safe function that notifies JAX of a preemption.
        """
        self.index, self.num = index, num
        self.heartbeat_seconds, self._notify = heartbeat_seconds, notify
        self._exchanges = 0
        self._stopping = self._announced = False
        # Whether other processes are unreachable: not yet connected, or lost.
        self._cut_off = False

    def barrier(self) -> None:
        """Wait until all processes have called this method."""
        self.gather(None)

    def gather(self, value: Any) -> list[Any]:
        """Gather a JSON value from each process, by process index.

        Waiting does not use a device, so other processes may compile or save for longer
        than the timeout of device collectives. If another process has failed, this
        process exits with the message and exit code of the failed process.

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
        """Whether all processes stop at this call, because one received a signal.

        Args:
          step: 1 at the first call, then incremented at each call.
        """
        if self.num == 1 or self._stopping:
            return self._stopping
        from jax.experimental import multihost_utils

        self._stopping = multihost_utils.reached_preemption_sync_point(step)
        return self._stopping

    def request_stop(self) -> None:
        """Let a later call of `should_stop` return True in all processes."""
        self._notify()

    def announce(self, code: int, reason: str, seconds: float | None = None) -> bool:
        """Report a failure of this process to all others, at their next `gather`.

        Args:
          code: Exit code for all processes.
          reason: Message for the user.
          seconds: Maximum wait for the other processes, in seconds. Defaults to the
            heartbeat timeout.

        Returns:
          Whether all processes received the report: False if one was lost, or did not
            call `gather` in time.
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
        """Whether another process was lost, and may have caused this process's failure.

        If none was lost, the failure is reported to all processes, with exit code 1.
        """
        # JAX aborts this process after the heartbeat timeout, so wait only for half.
        return self.num > 1 and not self.announce(1, reason, self.heartbeat_seconds / 2)

    def leave(self, code: int, reason: str) -> None:
        """Exit all processes after a failure of this process."""
        if self.num == 1:
            return
        if not self.announce(code, reason):
            _flush()
            os._exit(code)  # Skip JAX's shutdown, which would wait for all processes.
        self._end(code)

    @contextlib.contextmanager
    def connecting(self) -> Iterator[None]:
        """Context manager: a failure to connect is not reported to other processes."""
        self._cut_off = True
        yield
        self._cut_off = False

    def _end(self, code: int) -> NoReturn:
        """Exit this process when all other processes have called this method, too."""
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
            # Round up to a power of two, because each length needs a compilation.
            length = 1 << max(8, int(sizes.max() - 1).bit_length())
            rows = _all_gather(np.pad(text, (0, length - text.size)))
        return [
            json.loads(row[:size].tobytes())
            for row, size in zip(rows, sizes, strict=True)
        ]


def _all_gather(row: "np.ndarray") -> "np.ndarray":
    """All-gather an array (N,) from each process to an array (processes, N).

    Uses one device per process. `multihost_utils.process_allgather` would require the
    same number of devices in all processes.
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
    """Return the cluster to which this process belongs."""
    return _current


def enter(cluster: Cluster) -> None:
    """Set the cluster to which this process belongs."""
    global _current
    _current = cluster
