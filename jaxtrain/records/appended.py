"""An appended file whose records wait in memory while the disk is full."""

from pathlib import Path

from jaxtrain.console import tell


class Appended:
    """A file to append to, unbuffered; what finds no room is tried again later."""

    def __init__(self, path: Path):
        self._path = path
        self._file = path.open("ab", buffering=0)
        self._waiting = b""
        self._told = False

    def write(self, record: bytes) -> None:
        """Append a record, after those that wait."""
        self._waiting += record
        try:
            while self._waiting:
                self._waiting = self._waiting[self._file.write(self._waiting) :]
        except OSError as error:
            if not self._told:
                text = f"{self._path}: {error.strerror}; its lines wait in memory"
                tell(f"warning: {text}")
            self._told = True

    def close(self) -> None:
        """Try once more to write what waits, tell what is lost, and close the file."""
        self.write(b"")
        if self._waiting:
            text = f"{self._path}: the last {len(self._waiting)} bytes are lost"
            tell(f"warning: {text}")
        self._file.close()
