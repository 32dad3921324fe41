"""Files of a set as they are read: whole, but large ones after a look at the header."""

import errno
from typing import BinaryIO, NamedTuple

from jaxtrain.regular_file import read_bytes

# More than a file of the largest image that `data.max_pixels` allows can have.
MAX_FILE_BYTES = 2**30
# A smaller image file is read at once: more than its header may take.
LARGE_BYTES = 2**26


class LargeFile(NamedTuple):
    """A file of more than `LARGE_BYTES` that is not read yet."""

    path: bytes

    def read(self) -> bytes | OSError:
        """Return its bytes, or the reason why it cannot be read."""
        return read_file(self.path)


# A file: its content, why there is none, or where it is.
FileData = bytes | OSError | LargeFile


def read_file(path: bytes) -> bytes | OSError:
    """Return the bytes of a file, or the reason why it cannot be read."""
    try:
        return read_bytes(path, MAX_FILE_BYTES)
    except OSError as error:
        return _plain(error)


def read_unless_large(path: bytes) -> FileData:
    """Read a file as `read_file` does, unless it is large."""
    try:
        return read_bytes(path, LARGE_BYTES)
    except OSError as error:
        return LargeFile(path) if error.errno == errno.EFBIG else _plain(error)


def _plain(error: OSError) -> OSError:
    # Pickled with the batch; only the reason is asked for.
    return OSError(error.errno, error.strerror)


class BoundedReader:
    """A file that hands out so many bytes and then raises ValueError.

    Libraries that read a header take what it says: a text or a table of any size.

    Args:
      most: Bytes that may be read of it, however often.
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
