"""Lock of a run's directory against concurrent runs."""

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

# Exists while a run holds the directory, and after one that was killed.
LOCK = ".lock"
# Errors of file systems without locks.
NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP}
# Tries to lock a directory whose lock file others remove at the same moment.
MAX_TRIES = 100


@contextlib.contextmanager
def locked(workdir: Path) -> Iterator[None]:
    """Hold the directory for one run at a time; process 0 does so for all.

    It is created if missing, and removed at the end if it is still empty.

    Raises:
      UserError: Another run holds it, or it is not writable.
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
            if _leads_to(path, lock):
                path.unlink()
        os.close(lock)
        with contextlib.suppress(OSError):
            for folder in new_folders:
                folder.rmdir()


def cannot_write(workdir: Path, error: OSError) -> UserError:
    return UserError(
        f"--workdir {workdir}: cannot write there ({error.strerror}): choose another"
    )


def _lock(path: Path) -> int:
    """Create and lock the lock file, verify its path, and return its descriptor.

    A file, because NFS does not lock directories between machines.
    """
    gone = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    for _ in range(MAX_TRIES):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT
            descriptor = links.open_in_place(path, flags, refuse_hard_links=False)
        except FileNotFoundError as error:
            gone = error  # A run that has ended removed the directory.
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
                f"({error.strerror}), so a second run is not kept out"
            )
        if _leads_to(path, descriptor):
            return descriptor
        os.close(descriptor)  # A run that has ended removed the file.
    raise cannot_write(path.parent, gone)


def _leads_to(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except OSError:
        return False
