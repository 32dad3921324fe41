"""The folder of a run: locked by one run at a time, and found where it was moved to."""

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import jax

from jaxtrain import links
from jaxtrain.console import tell
from jaxtrain.errors import UserError

# There while a run holds the folder, and after one that was killed.
LOCK = ".lock"
# Of file systems that lock no files.
NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP}
# Tries to lock a folder whose lock others remove in the same moment.
MAX_TRIES = 100
# Longest path that macOS returns.
_MAX_PATH = 1024


class HeldFolder:
    """A folder that a process writes into by its path, which others may change.

    Args:
      path: Path of the folder.
      lock: Descriptor of its lock; None if it is not locked.
    """

    def __init__(self, path: Path, lock: int | None = None):
        self.path, self.lock = path, lock
        self.descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)

    def moved(self) -> bool:
        """Whether the path leads elsewhere now, or nowhere."""
        return not _leads_to(self.path, self.descriptor)

    def place(self) -> Path | None:
        """Return where the folder is now.

        Returns:
          Its path, or None if it was removed (moving it to another file system copies
          it, and removes it then) or the system does not tell.
        """
        get_path = getattr(fcntl, "F_GETPATH", None)  # Of macOS.
        try:
            if get_path is not None:
                found = fcntl.fcntl(self.descriptor, get_path, bytes(_MAX_PATH))
                path = Path(os.fsdecode(found.rstrip(b"\0")))
            else:
                path = Path(os.readlink(f"/proc/self/fd/{self.descriptor}"))
        except OSError:
            return None
        return path if _leads_to(path, self.descriptor) else None

    def keep_lock(self) -> None:
        """Lock the folder again if its lock was removed.

        Raises:
          UserError: Another run holds it now, or it cannot be written.
        """
        if self.lock is not None and not _leads_to(self.path / LOCK, self.lock):
            lock = _lock(self.path / LOCK)
            os.close(self.lock)
            self.lock = lock

    def close(self) -> None:
        """Remove the lock, also if the folder was moved, and let go of both."""
        if self.lock is not None:
            with contextlib.suppress(OSError):
                lock = os.stat(LOCK, dir_fd=self.descriptor)
                if os.path.samestat(lock, os.fstat(self.lock)):
                    os.unlink(LOCK, dir_fd=self.descriptor)
            os.close(self.lock)
        os.close(self.descriptor)


@contextlib.contextmanager
def locked(workdir: Path) -> Iterator[HeldFolder | None]:
    """Hold the folder for one run at a time; process 0 does so for all.

    It is made if it is not there, and removed again if nothing is put into it.

    Returns:
      The folder; None in other processes than the first.

    Raises:
      UserError: another run holds it, or it cannot be written.
    """
    if jax.process_index() != 0:
        yield None
        return
    made = [p for p in (workdir, *workdir.parents) if not os.path.lexists(p)]
    held = HeldFolder(workdir, _lock(workdir / LOCK))
    try:
        yield held
    finally:
        held.close()
        with contextlib.suppress(OSError):
            for folder in made:
                folder.rmdir()


def cannot_write(workdir: Path, error: OSError) -> UserError:
    return UserError(
        f"--workdir {workdir}: cannot write there ({error.strerror}): choose another"
    )


def _lock(path: Path) -> int:
    """Make and lock a file that the path still leads to then; return its descriptor.

    A file, as NFS locks no folders between machines.
    """
    gone = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    for _ in range(MAX_TRIES):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT
            descriptor = links.open_in_place(path, flags, only_name=False)
        except FileNotFoundError as error:
            gone = error  # A run that ended has removed the folder.
            continue
        except OSError as error:
            raise cannot_write(path.parent, error) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise UserError(
                f"another process trains in {path.parent}: wait for it, or choose "
                "another --workdir"
            ) from None
        except OSError as error:
            if error.errno not in NO_LOCKS:
                os.close(descriptor)
                raise cannot_write(path.parent, error) from None
            tell(
                f"warning: {path.parent}: no file can be locked there "
                f"({error.strerror}), so nothing keeps a second run out"
            )
        if _leads_to(path, descriptor):
            return descriptor
        os.close(descriptor)  # A run that ended has removed the file.
    raise cannot_write(path.parent, gone)


def _leads_to(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except OSError:
        return False
