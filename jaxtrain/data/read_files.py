"""Reading of data files, large ones only after a check of the header."""

import errno
from typing import BinaryIO, NamedTuple

from jaxtrain.regular_file import read_bytes

# Larger than any file of an image within `data.max_pixels`.
MAX_FILE_BYTES = 2**30
# Files up to this size are read at once: larger than any header.
LARGE_BYTES = 2**26


class LargeFile(NamedTuple):
    """A file larger than `LARGE_BYTES` that has not been read."""

    path: bytes

    def read(self) -> bytes | OSError:
        """Return the contents, or the error of reading them."""
        return read_file(self.path)


# Contents of a file, the error of reading it, or a large file.
FileData = bytes | OSError | LargeFile


def read_file(path: bytes) -> bytes | OSError:
    """Return the contents of a file, or the error of reading it."""
    try:
        return read_bytes(path, MAX_FILE_BYTES)
    except OSError as error:
        return _plain(error)


def read_unless_large(path: bytes) -> FileData:
    """Return the contents of a file, a `LargeFile`, or the error of reading it."""
    try:
        return read_bytes(path, LARGE_BYTES)
    except OSError as error:
        return LargeFile(path) if error.errno == errno.EFBIG else _plain(error)


def _plain(error: OSError) -> OSError:
    # Pickled with the batch; only the reason is needed.
    return OSError(error.errno, error.strerror)


class BoundedReader:
    """A file that raises ValueError after a number of bytes.

    Readers of headers trust the declared sizes of texts and tables.

    Args:
      file: File to read from.
      most: Maximum total number of bytes.
    """

    def __init__(self, file: BinaryIO, most: int):
        self._file, self._left = file, most
        self.seek, self.tell = file.seek, file.tell

    def read(self, size: int | None = -1) -> bytes:
        most = self._left + 1
        data = self._file.read(most if size is None or size < 0 else min(size, most))
        self._left -= len(data)
        if self._left < 0:
            raise ValueError("its header is too large")
        return data
