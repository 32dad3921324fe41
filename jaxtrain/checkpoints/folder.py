"""Directory of a run's checkpoints, which are named by their step.

A checkpoint is committed once its commit file exists; empty or partially deleted
directories are ignored. A damaged checkpoint is quarantined: its directory is renamed,
so that it is not read again.
"""

import contextlib
import itertools
import os
import sys
import time
from pathlib import Path

from jaxtrain import links
from jaxtrain.console import printable
from jaxtrain.errors import UserError

# File that Orbax writes last into a checkpoint.
COMMITTED = "commit_success.txt"
# Prefixes of renamed directories: of damaged checkpoints, and of checkpoints discarded
# when a run resumed from an earlier one.
DAMAGED, REWOUND = "quarantine", "rewound"
# Maximum number of attempts, 50 ms apart, to remove a failed save.
_REMOVALS = 40


def check_name(folder: Path) -> None:
    """Check that the path of a directory is UTF-8, as TensorStore requires.

    Raises:
      UserError: The absolute path is not UTF-8, or is not ASCII although the locale
        supports only ASCII.
    """
    path = os.path.abspath(folder)
    try:
        os.fsencode(path).decode()
    except UnicodeDecodeError:
        raise UserError(
            f"{printable(path)}: a directory name in this path is not UTF-8, so "
            "checkpoints cannot be written or read: rename the directory, or choose "
            "another --workdir"
        ) from None
    if not path.isascii() and sys.getfilesystemencoding() != "utf-8":
        raise UserError(
            f"{printable(path)}: the locale supports only ASCII, so checkpoints cannot "
            "be written or read: set LC_ALL=C.UTF-8 or PYTHONUTF8=1"
        )


def committed_steps(directory: Path) -> list[int]:
    """List the steps of committed checkpoints in a directory, in ascending order."""
    names = (path.parent.name for path in directory.glob(f"*/{COMMITTED}"))
    return sorted(int(name) for name in names if name.isdigit())


def newest_step(directory: Path) -> int:
    """Step of the newest committed checkpoint in a directory, or 0 without one."""
    return max(committed_steps(directory), default=0)


def newest_name(directory: Path) -> str:
    """Path of the newest committed checkpoint, or `none yet`, for a message."""
    steps = committed_steps(directory)
    return str(directory / str(steps[-1])) if steps else "none yet"


def remove(folder: Path) -> None:
    """Remove a checkpoint, starting with its commit file.

    Leftovers of an interrupted removal are then ignored.

    Raises:
      OSError: The checkpoint cannot be removed, or is outside of the workdir.
    """
    workdir = folder.parent.parent
    if not folder.is_symlink():
        links.check_inside(folder, workdir)
        (folder / COMMITTED).unlink()
    links.remove_tree(folder, workdir)


def remove_uncommitted(directory: Path) -> None:
    """Remove uncommitted checkpoints, which interrupted saves left."""
    if not directory.is_dir():
        return  # The directory was moved or removed.
    committed = set(committed_steps(directory))
    for path in directory.iterdir():
        if path.name.isdigit() and int(path.name) not in committed:
            links.remove_tree(path, directory.parent, ignore_errors=True)


def remove_failed(folder: Path) -> None:
    """Remove the files of a failed save; do nothing if the checkpoint is committed.

    The removal is retried, because other threads may still write files of the save.
    """
    for _ in range(_REMOVALS):
        if (folder / COMMITTED).exists():
            return
        links.remove_tree(folder, folder.parent.parent, ignore_errors=True)
        time.sleep(0.05)
        if not folder.exists():
            return


def rename(directory: Path, step: int, label: str = DAMAGED) -> None:
    """Rename the directory of a checkpoint to `LABEL-STEP`, if it still exists."""
    links.check_inside(directory, directory.parent)
    with contextlib.suppress(FileNotFoundError):
        (directory / str(step)).rename(unused(directory / f"{label}-{step}"))


def unused(path: Path, ending: str = "") -> Path:
    """Return an unused path: `path` + `ending`, or `path-1` + `ending`, and so on.

    Args:
      path: Path without a suffix.
      ending: Suffix, such as `.jsonl`.
    """
    numbers = itertools.chain([""], (f"-{i}" for i in itertools.count(1)))
    paths = (path.with_name(f"{path.name}{number}{ending}") for number in numbers)
    return next(path for path in paths if not os.path.lexists(path))
