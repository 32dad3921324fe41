"""Image files below one folder: their names, kept small, and how they are read.

Files are data that anybody may have written: only regular ones are opened, and none
that lies outside of the folder.
"""

import errno
import hashlib
import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxtrain.console import printable
from jaxtrain.data.files import StoredFile
from jaxtrain.errors import UserError

# More than a file of the largest image that `data.max_pixels` allows can have.
MAX_FILE_BYTES = 2**30
# As many are named where many are wrong.
NUM_NAMED = 5


def shown(name: bytes | str) -> str:
    """Return a name of a file as messages show it: in one line, with no codes."""
    text = os.fsencode(name).decode("utf-8", "backslashreplace")
    return printable(text).replace("\n", "\\n")


def listed(names: Iterable[bytes | str]) -> str:
    """Name the first of many things, and how many more there are."""
    names = list(names)
    more = f" and {len(names) - NUM_NAMED} more" if len(names) > NUM_NAMED else ""
    return ", ".join(map(shown, names[:NUM_NAMED])) + more


@dataclass(frozen=True)
class Names:
    """Many names in one piece of memory, which is pickled as fast as it is copied."""

    text: bytes
    ends: np.ndarray

    @classmethod
    def join(cls, names: list[bytes]) -> "Names":
        return cls(b"".join(names), np.cumsum([len(n) for n in names], dtype=np.int64))

    def first(self, num: int) -> "Names":
        """Return the first names, at most so many."""
        ends = self.ends[:num]
        return Names(self.text[: ends[-1] if len(ends) else 0], ends)

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, index: int) -> bytes:
        start = self.ends[index - 1] if index else 0
        return self.text[start : self.ends[index]]


@dataclass(frozen=True)
class ImageFileStore:
    """Image files below `root`, and the number of the class of each."""

    root: str
    names: Names
    labels: np.ndarray
    facts: Mapping[str, Any]

    # They differ in size; those that are grey are read as colour.
    image_shape = (None, None, 3)

    def strata(self, indices: np.ndarray) -> np.ndarray:
        return self.labels[indices]

    def read(self, indices: np.ndarray) -> tuple[list[StoredFile], np.ndarray]:
        root = os.fsencode(self.root)
        paths = [os.path.join(root, self.names[i]) for i in indices.tolist()]
        files = [StoredFile(shown(path), read_file(path)) for path in paths]
        return files, self.labels[indices]


def digest(names: Iterable[bytes], sizes: Iterable[int]) -> str:
    """Return the SHA-256 of the names and the sizes of files, in their order."""
    found = hashlib.sha256()
    for name, size in zip(names, sizes, strict=True):
        found.update(b"%b\0%d\0" % (name, size))
    return found.hexdigest()


class Folder:
    """A folder that files are taken from, and nothing beyond it.

    Args:
      root: the folder; a link stands for what it leads to.
      source: as messages call the set.

    Raises:
      UserError: it is no folder that can be read.
    """

    def __init__(self, root: str, source: str):
        self.source, self.root = source, root
        self._real = os.path.realpath(os.fsencode(root))
        self._real_folders: dict[bytes, bytes] = {}
        if not os.path.isdir(self._real):
            what = "is no folder" if os.path.lexists(root) else "is not there"
            raise UserError(f"{source}: {shown(root)} {what}, seen from {os.getcwd()}")

    def entries(self, name: bytes) -> list[os.DirEntry[bytes]]:
        """Return what a folder holds, hidden things left out, in the order of names.

        Raises:
          UserError: it cannot be read.
        """
        path = os.path.join(self._real, name) if name else self._real
        try:
            with os.scandir(path) as found:
                kept = [entry for entry in found if not entry.name.startswith(b".")]
        except OSError as error:
            raise UserError(
                f"{self.source}: cannot read the folder {shown(path)} "
                f"({error.strerror})"
            ) from None
        return sorted(kept, key=lambda entry: entry.name)

    def size(
        self, name: bytes, entry: os.DirEntry[bytes] | None = None, where: str = ""
    ) -> int:
        """Return the size of a file in bytes.

        Args:
          name: its place in the folder.
          entry: of that name, if it was listed.
          where: for messages, where the name was found.

        Raises:
          UserError: it lies elsewhere, is not there, or is no regular file.
        """
        if entry is None or entry.is_symlink():
            self._check_inside(name, where)
        path = os.path.join(self._real, name)
        try:
            status = os.stat(path) if entry is None else entry.stat()
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UserError(f"{self.source}{where}: {shown(name)}: {reason}") from None
        if not stat.S_ISREG(status.st_mode):
            raise UserError(f"{self.source}{where}: {shown(name)} is no regular file")
        return status.st_size

    def is_folder(self, name: bytes, entry: os.DirEntry[bytes]) -> bool:
        """Tell whether an entry is a folder.

        Raises:
          UserError: it is one that lies elsewhere.
        """
        try:
            found = entry.is_dir()
        except OSError as error:  # A link to itself.
            raise UserError(f"{self.source}: {shown(name)}: {error.strerror}") from None
        if found and entry.is_symlink():
            self._check_inside(name)
        return found

    def _check_inside(self, name: bytes, where: str = "") -> None:
        try:
            real = self._follow(name)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UserError(f"{self.source}{where}: {shown(name)}: {reason}") from None
        if not real.startswith(os.path.join(self._real, b"")):
            raise UserError(
                f"{self.source}{where}: {shown(name)} leads to {shown(real)}, outside "
                f"of {shown(self.root)}: only files in there are read; copy it, or "
                "name a folder that holds both"
            )

    def _follow(self, name: bytes) -> bytes:
        """Return where a file is; the folders on the way are followed once each."""
        folder, base = os.path.split(os.path.join(self._real, name))
        if folder not in self._real_folders:
            self._real_folders[folder] = os.path.realpath(folder)
        path = os.path.join(self._real_folders[folder], base)
        # A last part of `..` names no file.
        if base in (b"", b".", b"..") or os.path.islink(path):
            return os.path.realpath(path)
        return path


def read_file(path: bytes) -> bytes | OSError:
    """Return what a file holds, or why it cannot be read."""
    try:
        # A pipe would wait for somebody to write.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb", buffering=0) as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                return OSError(errno.EINVAL, "it is no regular file")
            if status.st_size > MAX_FILE_BYTES:
                told = f"its {status.st_size} bytes are more than {MAX_FILE_BYTES}"
                return OSError(errno.EFBIG, told)
            # No more than there is: the memory is taken before it is read.
            parts, left = [], status.st_size + 1
            while left > 0 and (part := file.read(left)):
                parts.append(part)
                left -= len(part)
            return b"".join(parts)
    except OSError as error:
        # Pickled with the batch; only the reason is asked for.
        return OSError(error.errno, error.strerror)
