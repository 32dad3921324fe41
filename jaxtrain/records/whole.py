"""Files and folders that a user asked for, whole or not at all."""

import contextlib
import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

from jaxtrain.errors import UserError


@contextlib.contextmanager
def whole(option: str, path: Path, *, folder: bool = False) -> Iterator[Path]:
    """Hand out another name beside a path, which becomes the path at the end.

    If anything goes wrong, a signal too, what was written is removed. A file that was
    there is replaced; a folder must be new, or empty.

    Args:
      option: that named the path, for messages.
      path: to be written.
      folder: it is a folder, which is made.

    Raises:
      UserError: it cannot be written.
    """
    with reported(option, path):
        _check(option, path, folder)
        partial = path.with_name(f".{path.name}.{_here()}-{os.getpid()}.partial")
        path.parent.mkdir(parents=True, exist_ok=True)
        _sweep(path)
        if folder:
            partial.mkdir()
        else:
            partial.touch()
    try:
        yield partial
        with reported(option, path):
            os.replace(partial, path)
    except BaseException:  # A signal, too.
        _remove(partial)
        raise


def _sweep(path: Path) -> None:
    """Remove what killed processes of this user on this machine have left of a path."""
    start, end = f".{path.name}.{_here()}-", ".partial"
    with contextlib.suppress(OSError):
        for left in list(path.parent.iterdir()):
            if not (left.name.startswith(start) and left.name.endswith(end)):
                continue
            number = left.name.removeprefix(start).removesuffix(end)
            ours = left.lstat().st_uid == os.geteuid()
            if number.isdecimal() and ours and not _is_alive(int(number)):
                _remove(left)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


def _remove(partial: Path) -> None:
    if partial.is_dir() and not partial.is_symlink():
        shutil.rmtree(partial, ignore_errors=True)
    else:
        partial.unlink(missing_ok=True)


def _here() -> str:
    """Return the name of this machine: each has process numbers of its own."""
    return socket.gethostname().replace("/", "-")


@contextlib.contextmanager
def reported(option: str, path: Path) -> Iterator[None]:
    """Make a mistake of the user out of an error of the system.

    Raises:
      UserError: there was one.
    """
    try:
        yield
    except OSError as error:
        raise UserError(
            f"{option} {path}: cannot write there ({error.strerror or error}): choose "
            "another place"
        ) from None


def check_new_folder(option: str, path: Path) -> None:
    """Check, before hours of work, that nothing is where a folder is to be written.

    Raises:
      UserError: Something is.
    """
    if path.exists():
        raise UserError(f"{option} {path} is there already: choose a new folder")


def _check(option: str, path: Path, folder: bool) -> None:
    if not path.name:  # Of `.` and `/`, which cannot be put in place of themselves.
        raise UserError(f"{option} {path} is there already: give a new name")
    if folder and os.path.lexists(path) and not path.is_dir():
        raise UserError(f"{option} {path} is a file: give a folder")
    if folder and path.is_dir() and any(path.iterdir()):
        raise UserError(
            f"{option} {path} holds something already: remove it, or choose another"
        )
    if not folder and path.is_dir():
        raise UserError(f"{option} {path} is a folder: give the name of a file")
