"""The folder of a run, held open: where it is, if its path leads there no more."""

import fcntl
import os
from pathlib import Path

# Longest path that macOS returns.
_MAX_PATH = 1024


class HeldFolder:
    """A folder that a process writes into by its path, which others may change."""

    def __init__(self, path: Path):
        self.path = path
        self.descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)

    def moved(self) -> bool:
        """Whether the path leads elsewhere now, or nowhere."""
        return not self._is_at(self.path)

    def place(self) -> Path | None:
        """Return where the folder is now.

        Returns:
          Its path, or None if it was removed (moving it to another file system copies
          it, and removes it then) or the system does not tell.
        """
        get_path = getattr(fcntl, "F_GETPATH", None)  # Of macOS.
        try:
            if get_path is not None:
                found = fcntl.fcntl(self.descriptor, get_path, bytes(_MAX_PATH))
                path = Path(os.fsdecode(found.rstrip(b"\0")))
            else:
                path = Path(os.readlink(f"/proc/self/fd/{self.descriptor}"))
        except OSError:
            return None
        return path if self._is_at(path) else None

    def close(self) -> None:
        os.close(self.descriptor)

    def _is_at(self, path: Path) -> bool:
        try:
            return os.path.samestat(os.stat(path), os.fstat(self.descriptor))
        except OSError:
            return False
