"""Which process works on which trial, for processes that may be killed at any time."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from jaxtrain import links
from jaxtrain.errors import UserError

LOCK = "sweep.lock"


class TrialLocks:
    """Locks of a sweep: a byte of one file for the study, and one for each trial.

    The system frees the locks of a process that has ended, however it did.

    Args:
      folder: Folder of the sweep, which is there.

    Raises:
      UserError: The file cannot be written.
    """

    def __init__(self, folder: Path):
        self._path = folder / LOCK
        try:
            flags = os.O_RDWR | os.O_CREAT
            self._file = links.open_in_place(self._path, flags, only_name=False)
        except OSError as error:
            raise self._fails(error) from None

    @contextlib.contextmanager
    def study(self) -> Iterator[None]:
        """Hold the study, for which others wait meanwhile.

        Raises:
          UserError: Files cannot be locked there.
        """
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX, 1, 0)
        except OSError as error:
            raise self._fails(error) from None
        try:
            yield
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN, 1, 0)

    def take(self, number: int) -> bool:
        """Take a trial; return whether no other process has it."""
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, number + 1)
        except (BlockingIOError, PermissionError):
            return False
        return True

    def release(self, number: int) -> None:
        fcntl.lockf(self._file, fcntl.LOCK_UN, 1, number + 1)

    def close(self) -> None:
        """Close the file, which frees all locks of this process."""
        os.close(self._file)

    def _fails(self, error: OSError) -> UserError:
        return UserError(
            f"--workdir {self._path.parent}: {self._path.name} cannot be written and "
            f"locked there ({error.strerror}): choose another"
        )
