"""Safe in-place writes and deletions in directories of unknown origin.

A workdir from somebody else may contain links to files of the user. Use this module for
files that are changed in place and to remove directories; all other files are replaced
atomically (`atomic_file`). The path of the workdir may contain links.
"""

import errno
import os
import shutil
import stat
from pathlib import Path


def open_in_place(path: Path, flags: int, *, refuse_hard_links: bool = True) -> int:
    """Open a regular file for in-place changes; return its descriptor.

    Args:
      path: Path of the file.
      flags: Flags of `os.open`, such as `os.O_WRONLY | os.O_APPEND | os.O_CREAT`.
      refuse_hard_links: Whether to refuse a file with several hard links, as the change
        would also affect its other names, such as a backup.

    Raises:
      OSError: The file cannot be opened, is a link, has several hard links, or is not
        a regular file.
    """
    # Without O_NONBLOCK, opening a named pipe would wait for a reader.
    flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, 0o666)
    except OSError:
        if path.is_symlink():
            _check(path, path.lstat(), refuse_hard_links)
        raise
    try:
        _check(path, os.fstat(descriptor), refuse_hard_links)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def check_in_place(path: Path) -> None:
    """Check that a library can safely change a file in place, if the file exists.

    The file is not opened, because closing it would release SQLite's locks on it.

    Raises:
      OSError: The file is a link, has several hard links, or is not a regular file.
    """
    if os.path.lexists(path):
        _check(path, path.lstat(), refuse_hard_links=True)


def _check(path: Path, status: os.stat_result, refuse_hard_links: bool) -> None:
    if stat.S_ISLNK(status.st_mode):
        message = f"{path.name} is a link, and links are not followed: remove the link"
        raise OSError(errno.ELOOP, message, path) from None
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, f"{path.name} is not a regular file", path)
    if refuse_hard_links and status.st_nlink > 1:
        message = (
            f"{path.name} has {status.st_nlink} hard links: replace the file with a "
        )
        raise OSError(errno.EMLINK, f"{message}copy", path)


def check_inside(path: Path, root: Path) -> None:
    """Check that a path is inside a directory after all links are resolved.

    Args:
      path: Path below `root`; a missing file is allowed.
      root: Path of the directory, which may contain links.

    Raises:
      OSError: A link below `root` leads outside.
    """
    real, real_root = os.path.realpath(path), os.path.realpath(root)
    if os.path.commonpath([real, real_root]) != real_root:
        raise OSError(
            errno.EXDEV,
            f"{path} resolves to {real}, outside {real_root}: remove the link, or move "
            "the entire directory to the target of the link",
            path,
        )


def remove_tree(path: Path, root: Path, *, ignore_errors: bool = False) -> None:
    """Remove a directory tree inside `root`, or only the link if the path is a symlink.

    Args:
      path: Directory or link to remove.
      root: Directory that must contain `path`.
      ignore_errors: Whether to ignore errors, after removing as much as possible.

    Raises:
      OSError: The path is outside `root`, or cannot be removed.
    """
    try:
        check_inside(path.parent, root)
        if path.is_symlink():
            path.unlink()
        else:
            shutil.rmtree(path, ignore_errors=ignore_errors)
    except OSError:
        if not ignore_errors:
            raise
