"""Lock of a run's directory against concurrent runs."""

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import jax

from jaxtrain import links
from jaxtrain.console import print_stderr
from jaxtrain.errors import UserError

# Name of the lock file, which is removed at the end of a run unless the run is killed.
LOCK = ".lock"
# `errno` values of `flock` on file systems that do not support locks.
NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP}
# Maximum number of attempts to lock, as other processes may remove the lock file.
MAX_TRIES = 100


@contextlib.contextmanager
def locked(workdir: Path) -> Iterator[None]:
    """Context manager: lock a run's directory. Only process 0 takes the lock.

    The directory is created if it is missing; if it is still empty at the end, it is
    removed.

    Raises:
      UserError: Another run holds the lock, or the directory is not writable.
    """
    if jax.process_index() != 0:
        yield
        return
    new_folders = [p for p in (workdir, *workdir.parents) if not os.path.lexists(p)]
    path = workdir / LOCK
    lock = _lock(path)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            if _is_file_of(path, lock):
                path.unlink()
        os.close(lock)
        with contextlib.suppress(OSError):
            for folder in new_folders:
                folder.rmdir()


def cannot_write(workdir: Path, error: OSError) -> UserError:
    return UserError(
        f"--workdir {workdir}: the directory is not writable ({error.strerror}): "
        "choose another directory"
    )


def _lock(path: Path) -> int:
    """Create and lock the lock file; return its file descriptor.

    A file is locked instead of the directory, because NFS does not lock directories
    between machines.
    """
    gone = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    for _ in range(MAX_TRIES):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT
            descriptor = links.open_in_place(path, flags, refuse_hard_links=False)
        except FileNotFoundError as error:
            gone = error  # Another run ended, and removed the directory.
            continue
        except OSError as error:
            raise cannot_write(path.parent, error) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise UserError(
                f"another process trains in {path.parent}: wait for the process to "
                "finish, or choose another --workdir"
            ) from None
        except OSError as error:
            if error.errno not in NO_LOCKS:
                os.close(descriptor)
                raise cannot_write(path.parent, error) from None
            print_stderr(
                f"warning: {path.parent}: the file system does not support file locks "
                f"({error.strerror}), so a second run could start in the same "
                "directory: start only one run"
            )
        if _is_file_of(path, descriptor):
            return descriptor
        os.close(descriptor)  # Another run ended, and removed this lock file.
    raise cannot_write(path.parent, gone)


def _is_file_of(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except OSError:
        return False
