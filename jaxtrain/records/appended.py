"""A file of records that a full disk delays, and neither cuts nor loses."""

from pathlib import Path

from jaxtrain.console import tell


class Appended:
    """A file to append to, at once; what finds no room waits for the next record."""

    def __init__(self, path: Path):
        self._path = path
        self._file = path.open("ab", buffering=0)
        self._waiting = b""
        self._told = False

    def write(self, record: bytes) -> None:
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
        self.write(b"")
        if self._waiting:
            text = f"{self._path}: the last {len(self._waiting)} bytes are lost"
            tell(f"warning: {text}")
        self._file.close()
