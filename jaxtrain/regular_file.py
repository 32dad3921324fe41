"""Safe reading of files of unknown origin.

Opening a named pipe waits for a writer, and a device may never end. These functions
open only regular files, or raise OSError at once.
"""

import contextlib
import errno
import io
import os
import stat

AnyPath = str | bytes | os.PathLike[str]

# Maximum size of a JSON file: a million class names fit.
MAX_BYTES = 2**26
# Maximum size of metrics.jsonl: a few million lines.
MAX_TABLE_BYTES = 2**30


def open_regular(path: AnyPath, max_bytes: int | None = None) -> io.BufferedReader:
    """Open a regular file for reading; links are followed.

    Args:
      path: Path of the file.
      max_bytes: Maximum size in bytes. None sets no limit.

    Raises:
      OSError: The file cannot be opened, is a directory, a pipe, a socket or a device,
        or is larger than `max_bytes`.
    """
    # Without O_NONBLOCK opening a pipe would wait for a writer.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    descriptor = os.open(path, flags)
    try:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", path)
        if max_bytes is not None and status.st_size > max_bytes:
            message = (
                f"the file has {status.st_size} bytes, more than the limit of "
                f"{max_bytes}"
            )
            raise OSError(errno.EFBIG, message, path)
        return open(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_bytes(path: AnyPath, max_bytes: int = MAX_BYTES) -> bytes:
    """Return the contents of a regular file."""
    with open_regular(path, max_bytes) as file:
        # Read the size of the file: a read of `max_bytes` would allocate `max_bytes`.
        parts, left = [], os.fstat(file.fileno()).st_size + 1
        while left > 0 and (part := os.read(file.fileno(), left)):
            parts.append(part)
            left -= len(part)
        return b"".join(parts)


def read_text(
    path: AnyPath, max_bytes: int = MAX_BYTES, *, errors: str = "strict"
) -> str:
    """Return the contents of a regular file, decoded as UTF-8.

    Raises:
      OSError: See `open_regular`.
      UnicodeDecodeError: The file is not UTF-8, and `errors` is "strict".
    """
    return read_bytes(path, max_bytes).decode(errors=errors)


def check_folder(
    folder: AnyPath, above: frozenset[tuple[int, int]] = frozenset()
) -> None:
    """Check that a directory contains only regular files and directories, recursively.

    Called before a library opens the files itself.

    Args:
      folder: Directory to check.
      above: (device, inode) of the parent directories of `folder`. Links to a parent
        are not followed, so that the recursion ends.

    Raises:
      OSError: The directory contains something else, or cannot be listed.
    """
    status = os.stat(folder)
    identity = status.st_dev, status.st_ino
    if identity in above:
        return
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                check_folder(entry.path, above | {identity})
            elif entry.is_symlink() and not os.path.exists(entry.path):
                continue  # Opening a broken link fails later.
            elif not entry.is_file():
                raise OSError(errno.EINVAL, "it is not a regular file", entry.path)


def make_private(folder: str | os.PathLike[str]) -> bool:
    """Create a directory with mode 0700 if it is missing; return whether it is private.

    A directory is private if the directory, and a link at its path, belong to the
    effective user, and if only this user can write to the directory.
    """
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, 0o700)
    status = os.stat(folder)
    owners = {status.st_uid, os.lstat(folder).st_uid}
    others_write = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    is_own = stat.S_ISDIR(status.st_mode) and owners == {os.geteuid()}
    return is_own and not others_write
