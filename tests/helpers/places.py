"""Folders of a test run: temporary files, which it removes, and compiled programs."""

import atexit
import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path

from jaxtrain.regular_file import make_private

MEMORY = Path("/dev/shm")
CACHE = "jaxtrain-tests"
# Tests see paths that break what splits, quotes or encodes them wrongly.
PREFIX = "jaxtrain tests ü&"


def temporary() -> Path:
    """Create a folder that this process removes when it ends.

    It lies in $PYTEST_DEBUG_TEMPROOT or in memory, where there is room: removing a
    checkpoint from a disk takes a second. Folders of runs that were killed go first.
    """
    root = os.environ.get("PYTEST_DEBUG_TEMPROOT")
    if not root and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > 4e9:
        root = str(MEMORY)
    root = Path(root or tempfile.gettempdir())
    for old in root.glob(f"{PREFIX}*"):
        info = old.lstat()
        if info.st_uid == os.geteuid() and info.st_ctime < time.time() - 60:
            _remove_unless_locked(old)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=root))
    _lock(folder)
    atexit.register(_remove, folder, os.getpid())
    return folder


def _lock(folder: Path) -> None:
    """Lock a folder for the life of this process and of those that it forks."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise


def _remove_unless_locked(folder: Path) -> None:
    try:
        _lock(folder)
    except OSError:
        return
    shutil.rmtree(folder, ignore_errors=True)


def _remove(folder: Path, pid: int) -> None:
    if os.getpid() == pid:  # And not a process that was forked.
        shutil.rmtree(folder, ignore_errors=True)


def cache(temporary: Path) -> Path:
    """Create the user's folder of caches of tests; without a home, a temporary one.

    Compiled programs in it are executed: a folder that belongs to another user or into
    which others can write is not used.
    """
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if home.startswith("~"):
        return temporary / "cache"
    folder = Path(home) if Path(home).name == CACHE else Path(home, CACHE)
    try:
        private = make_private(folder)
    except OSError:
        private = False
    return folder if private else temporary / "cache"
