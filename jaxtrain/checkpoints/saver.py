"""Save on storage that may fail: the third failure in a row ends the run."""

import contextlib
import functools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from jaxtrain.checkpoints.store import Checkpoints
from jaxtrain.config import CheckpointConfig
from jaxtrain.errors import CheckpointError, UserError
from jaxtrain.processes import peers
from jaxtrain.trees import num_bytes

# Saves in a row that may fail; the last of them ends the run.
MAX_FAILURES = 3


class Saver:
    """Saves without ending the run when a save fails.

    Of several processes the first saves, and alone needs to know; if it ends, so do the
    others. Too many failures in a row raise CheckpointError.

    Args:
      saved: Checkpoints to save to.
      tell: Function that is called with a message on each save that failed.
      before_write: Function that the process that writes calls with the step.
    """

    def __init__(
        self,
        saved: Checkpoints,
        tell: Callable[[str], None],
        before_write: Callable[[int], None],
    ):
        self._saved, self._tell, self._before_write = saved, tell, before_write
        self._failures = 0
        # Of the last save.
        self._error: CheckpointError | None = None

    def save(self, step: int, *args: Any) -> None:
        """Start to save, as `Checkpoints.save` does.

        Raises:
          BadNumbersError: the state is not finite.
          CheckpointError: this is the last of too many failures in a row.
        """
        self.look(wait=True)
        # The others wait for it here, not in a collective, which may run out of time.
        peers.gather(None)
        self._error = None
        before_write = functools.partial(self._before_write, step)
        with self._counted():
            self._saved.save(step, *args, before_write=before_write)

    def look(self, *, wait: bool = False) -> None:
        """Warn if the last save has failed; do not wait for it unless asked.

        Raises:
          CheckpointError: this is the last of too many failures in a row.
        """
        with self._counted():
            if self._saved.committed(None if wait else 0):
                self._failures = 0

    def finish(self, *, read_back: bool) -> None:
        """Wait for the last save, in all processes.

        Args:
          read_back: Whether to read it back, too, if that was not done.

        Raises:
          CheckpointError: it failed.
        """
        try:
            self._saved.finish() if read_back else self._saved.wait()
        except CheckpointError as error:
            self._error = self._place(error)
        if self._error is not None:
            raise CheckpointError(
                f"{self._error}: this was the last save, and the run is not finished "
                "without it. Free some space, or mend the disk; the same command goes "
                "on from the checkpoint before"
            )
        peers.gather(None)

    def _place(self, error: CheckpointError) -> CheckpointError:
        folder = self._saved.directory
        free = _show(shutil.disk_usage(folder).free)
        return CheckpointError(f"{error} ({folder}, {free} free)")

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        """Count a failure, and let only the last of too many through."""
        try:
            yield
        except CheckpointError as error:
            self._failures += 1
            self._error = self._place(error)
            message = f"{self._error}: failure {self._failures} of {MAX_FAILURES}"
            message += " in a row"
            if self._failures < MAX_FAILURES:
                self._tell(f"{message}; training goes on, and tries again")
                return
            self._tell(message)
            steps = self._saved.listed()
            raise CheckpointError(
                f"{message}. The last good checkpoint is "
                f"{steps[-1] if steps else 'none'}: free some space, and the same "
                "command goes on from there"
            ) from error


def num_copies(config: CheckpointConfig, total_steps: int) -> int:
    """Return how many checkpoints may lie on the disk at once.

    They are those kept, the last one read back and one that is being written.
    """
    every = config.keep_every_steps
    return config.keep + config.keep_best + (total_steps // every if every else 0) + 2


def check_space(
    folder: Path, abstract_state: Any, config: CheckpointConfig, total_steps: int
) -> None:
    """Raise UserError if the checkpoints of a run do not fit where they will lie.

    Counted are their arrays, uncompressed; those there already are to be replaced.
    """
    size, copies = num_bytes(abstract_state), num_copies(config, total_steps)
    old = [p for step in folder.glob("[0-9]*") for p in step.rglob("*") if p.is_file()]
    free = shutil.disk_usage(folder).free + sum(p.stat().st_size for p in old)
    if free < copies * size:
        raise UserError(
            f"{folder}: the checkpoints may take {_show(copies * size)}, {copies} of "
            f"{_show(size)} each (checkpoint.keep = {config.keep}, keep_best = "
            f"{config.keep_best}, keep_every_steps = {config.keep_every_steps}, one "
            f"read back and one being written; arrays uncompressed), but {_show(free)} "
            "are free there: free some space, choose another --workdir, or keep fewer"
        )


def _show(num_bytes: int) -> str:
    """Return a size such as 1.5 GB."""
    for power, unit in ((9, "GB"), (6, "MB"), (3, "kB")):
        if num_bytes >= 10**power:
            return f"{num_bytes / 10**power:.1f} {unit}"
    return f"{num_bytes} bytes"
