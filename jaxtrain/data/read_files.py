"""Reading of data files; large files are read only after a check of the header."""

import errno
from typing import BinaryIO, NamedTuple

from jaxtrain.regular_file import read_bytes

# Maximum file size in bytes. Image files with at most `data.max_pixels` are smaller.
MAX_FILE_BYTES = 2**30
# File size in bytes above which the header is checked before the file is read.
LARGE_BYTES = 2**26


class LargeFile(NamedTuple):
    """A file larger than `LARGE_BYTES` that has not been read."""

    path: bytes

    def read(self) -> bytes | OSError:
        """Return the contents of the file, or the error of reading it."""
        return read_file(self.path)


# Contents of a file, or the error of reading it, or a large file that was not read.
FileData = bytes | OSError | LargeFile


def read_file(path: bytes) -> bytes | OSError:
    """Return the contents of a file, or the error of reading it."""
    try:
        return read_bytes(path, MAX_FILE_BYTES)
    except OSError as error:
        return _plain(error)


def read_unless_large(path: bytes) -> FileData:
    """Return the contents of a file, or a `LargeFile`, or the error of reading it."""
    try:
        return read_bytes(path, LARGE_BYTES)
    except OSError as error:
        return LargeFile(path) if error.errno == errno.EFBIG else _plain(error)


def _plain(error: OSError) -> OSError:
    # The error is pickled with the batch, so only errno and the message are retained.
    return OSError(error.errno, error.strerror)


class BoundedReader:
    """A file that raises ValueError when more than `most` bytes are read.

    The limit protects header parsers, which trust the sizes that a file declares.

    Args:
      file: File to read from.
      most: Maximum total number of bytes to read.
    """

    def __init__(self, file: BinaryIO, most: int):
        self._file, self._left = file, most
        self.seek, self.tell = file.seek, file.tell

    def read(self, size: int | None = -1) -> bytes:
        most = self._left + 1
        data = self._file.read(most if size is None or size < 0 else min(size, most))
        self._left -= len(data)
        if self._left < 0:
            raise ValueError("the header is too large")
        return data
