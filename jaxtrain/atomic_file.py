"""Atomic writes of files and directories; symbolic links are replaced.

The content is written to a temporary file in the same directory, and the file is then
renamed. If the path is a link, the link is replaced and its target is unchanged.
Parent directories may be links: see `links.check_inside`.
"""

import contextlib
import errno
import os
import secrets
import shutil
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

# Temporary files are named .NAME.HOST-PID.RANDOM.partial. NAME, the final name, is
# truncated to 24 characters, because file names are limited to 255 bytes.
SUFFIX, _NAME_LENGTH = ".partial", 24


def write(path: Path, content: str | bytes) -> None:
    """Replace a file atomically; the new content is first synced to disk.

    After a kill or a power loss the file has either the old or the new content.
    """
    with replacing(path) as temporary:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)


@contextlib.contextmanager
def replacing(path: Path, *, folder: bool = False) -> Iterator[Path]:
    """Yield an empty temporary file or directory, renamed to `path` at the end.

    After an error or a signal the temporary file is removed, and `path` is unchanged.
    Permissions follow the umask.

    Args:
      path: Path to create or replace. An existing path must be a regular file or, if
        `folder` is True, an empty directory.
      folder: Whether to yield a directory instead of a file.

    Raises:
      OSError: Writing fails, or the path is not a regular file.
    """
    _check_target(path, folder)
    _remove_abandoned(path)
    temporary = _temporary_path(path)
    if folder:
        temporary.mkdir()
    else:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        os.close(os.open(temporary, flags, 0o666))
    try:
        yield temporary
        if not folder:
            _sync(temporary)
        os.replace(temporary, path)
    except BaseException:  # Also after a signal: leftovers take disk space.
        _remove(temporary)
        raise


def check_writable(path: Path) -> None:
    """Check that a file can be written, without changing it."""
    _check_target(path, folder=False)
    temporary = _temporary_path(path)
    os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
    temporary.unlink()


def remove_temporary(folder: Path) -> None:
    """Remove all temporary files in a directory; no process may be writing there."""
    for left in folder.glob(f".*{SUFFIX}"):
        _remove(left)


def _check_target(path: Path, folder: bool) -> None:
    """Raise OSError if the path, or its link target, is a file that is not regular."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        if error.errno == errno.ELOOP:  # A self-referential link is replaced.
            return
        raise
    if not (folder or stat.S_ISREG(mode)):
        raise OSError(errno.EINVAL, f"{path.name} is not a regular file", path)


def _temporary_path(path: Path) -> Path:
    return path.with_name(
        f"{_prefix(path)}{os.getpid()}.{secrets.token_hex(4)}{SUFFIX}"
    )


def _prefix(path: Path) -> str:
    # Process ids are unique only on one machine.
    machine = socket.gethostname().replace("/", "-")
    return f".{path.name[:_NAME_LENGTH]}.{machine}-"


def _remove_abandoned(path: Path) -> None:
    """Remove temporary files of `path` if the process that wrote them was killed.

    Files of other users and machines are not removed.
    """
    start = _prefix(path)
    with contextlib.suppress(OSError):
        for leftover in list(path.parent.iterdir()):
            if not (leftover.name.startswith(start) and leftover.name.endswith(SUFFIX)):
                continue
            process = leftover.name.removeprefix(start).partition(".")[0]
            is_own_file = leftover.lstat().st_uid == os.geteuid()
            if process.isdecimal() and is_own_file and not _is_alive(int(process)):
                _remove(leftover)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


def _remove(temporary: Path) -> None:
    if temporary.is_dir() and not temporary.is_symlink():
        shutil.rmtree(temporary, ignore_errors=True)
    else:
        temporary.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
