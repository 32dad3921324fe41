"""Safe reading of files of unknown origin.

Opening a named pipe waits for a writer, and reading a device may never end. The
functions of this module raise OSError instead.
"""

import contextlib
import errno
import io
import os
import stat

AnyPath = str | bytes | os.PathLike[str]

# Maximum size of a JSON file, in bytes: a million class names fit.
MAX_BYTES = 2**26
# Maximum size of metrics.jsonl, in bytes: a few million lines.
MAX_TABLE_BYTES = 2**30


def open_regular(path: AnyPath, max_bytes: int | None = None) -> io.BufferedReader:
    """Open a regular file for reading; links are followed.

    Args:
      path: Path of the file.
      max_bytes: Maximum size in bytes. None sets no limit.

    Raises:
      OSError: The file cannot be opened, is not regular, or is larger than `max_bytes`.
    """
    # Without O_NONBLOCK, `os.open` would wait for a writer of a pipe.
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
        # `os.read` allocates the requested size, so request only the size of the file.
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
    """Check recursively that a directory contains only regular files and directories.

    Called before a library reads the directory, because the library would open pipes.

    Args:
      folder: Directory to check.
      above: (device, inode) of each parent directory of `folder`. Links to a parent
        are not followed, so that the recursion ends.

    Raises:
      OSError: The directory contains other files, such as a pipe, or cannot be listed.
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
    """Create a directory with mode 0700 if missing; return whether it is private.

    A directory is private if it belongs to the effective user and only this user can
    write to it. If the path is a link, the link must belong to the user, too.
    """
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, 0o700)
    status = os.stat(folder)
    owners = {status.st_uid, os.lstat(folder).st_uid}
    others_write = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    is_own = stat.S_ISDIR(status.st_mode) and owners == {os.geteuid()}
    return is_own and not others_write
