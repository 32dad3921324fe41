"""Atomic writing of files and directories that command-line options name."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from jaxtrain import atomic_file
from jaxtrain.errors import UserError
from jaxtrain.system_errors import LIMITS


@contextlib.contextmanager
def atomic_output(option: str, path: Path, *, folder: bool = False) -> Iterator[Path]:
    """Context manager: yield a temporary path, and rename it to `path` at the end.

    After an error or a signal, the temporary path is removed. An existing file is
    replaced; an existing directory must be empty.

    Args:
      option: Command-line option that names the path, for messages.
      path: Path of the output.
      folder: Whether the output is a directory.
    """
    with contextlib.ExitStack() as stack:
        with reported(option, path):
            _check(option, path, folder)
            stack.enter_context(created(path.parent))
            replacing = atomic_file.replacing(path, folder=folder)
            partial = stack.enter_context(replacing)
        yield partial
        with reported(option, path):
            stack.close()


@contextlib.contextmanager
def created(folder: Path) -> Iterator[None]:
    """Context manager: create missing directories; remove them if the block fails."""
    new = [path for path in (folder, *folder.parents) if not os.path.lexists(path)]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:  # Includes exceptions raised by signal handlers.
        with contextlib.suppress(OSError):
            for path in new:
                path.rmdir()
        raise


@contextlib.contextmanager
def reported(option: str, path: Path) -> Iterator[None]:
    """Context manager: convert OSError to a UserError that names option and path."""
    try:
        yield
    except OSError as error:
        if error.errno in LIMITS:
            raise
        raise UserError(
            f"{option} {path}: the path is not writable ({error.strerror or error}): "
            "choose another path"
        ) from None


def check_new_folder(option: str, path: Path) -> None:
    """Raise UserError if the path of a directory to create already exists."""
    if path.exists():
        raise UserError(f"{option} {path} already exists: choose a new directory")


def _check(option: str, path: Path, folder: bool) -> None:
    if not path.name:  # The directories `.` and `/` cannot be replaced.
        raise UserError(f"{option} {path} already exists: choose a new file name")
    if folder and os.path.lexists(path) and not path.is_dir():
        raise UserError(f"{option} {path} is a file: give a directory")
    if folder and path.is_dir() and any(path.iterdir()):
        raise UserError(
            f"{option} {path} is not empty: empty the directory, or choose another "
            "directory"
        )
    if not folder and path.is_dir():
        raise UserError(f"{option} {path} is a directory: give a file name")
