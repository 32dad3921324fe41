"""Files and folders that a user asked for, whole or not at all."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from jaxtrain import atomic_file
from jaxtrain.errors import UserError
from jaxtrain.system_errors import LIMITS


@contextlib.contextmanager
def whole(option: str, path: Path, *, folder: bool = False) -> Iterator[Path]:
    """Hand out another name beside a path, which becomes the path at the end.

    If anything goes wrong, a signal too, what was written is removed. A file that was
    there is replaced; a folder must be new, or empty.

    Args:
      option: that named the path, for messages.
    """
    with contextlib.ExitStack() as stack:
        with reported(option, path):
            _check(option, path, folder)
            stack.enter_context(made(path.parent))
            replacing = atomic_file.replacing(path, folder=folder)
            partial = stack.enter_context(replacing)
        yield partial
        with reported(option, path):
            stack.close()


@contextlib.contextmanager
def made(folder: Path) -> Iterator[None]:
    """Make a folder, and those above it; if the block fails, remove them if empty."""
    new = [path for path in (folder, *folder.parents) if not os.path.lexists(path)]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:  # A signal, too.
        with contextlib.suppress(OSError):
            for path in new:
                path.rmdir()
        raise


@contextlib.contextmanager
def reported(option: str, path: Path) -> Iterator[None]:
    """Make a mistake of the user out of an error of the system."""
    try:
        yield
    except OSError as error:
        if error.errno in LIMITS:
            raise
        raise UserError(
            f"{option} {path}: cannot write there ({error.strerror or error}): choose "
            "another place"
        ) from None


def check_new_folder(option: str, path: Path) -> None:
    """Check, before hours of work, that nothing is where a folder is to be written."""
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
