"""Image files below one folder: their names, kept small, and how they are read.

Files are data that anybody may have written: only regular ones are opened, and none
that lies outside of the folder.
"""

import functools
import hashlib
import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxtrain.config import DataConfig
from jaxtrain.console import printable
from jaxtrain.data.files import StoredFile
from jaxtrain.data.problems import NUM_NAMED, UnusableError
from jaxtrain.data.read_files import read_unless_large
from jaxtrain.data.stores import Remark, WithTargets
from jaxtrain.errors import UserError

# What to do about files beyond the folder of a set.
OUTSIDE = (
    "only files in the folder are read: copy it, name a folder that holds all, or, if "
    "you trust what put it there, set data.allow_outside to True (--allow-outside of "
    "new)"
)

# What such files are counted as.
LEADS_OUT = "that lead out of the folder"


def encoded_name(name: bytes | str) -> bytes:
    """Bytes of a file's name that a list or a table holds: UTF-8 in any locale."""
    name = os.fspath(name)
    return name if isinstance(name, bytes) else name.encode("utf-8", "surrogateescape")


def shown(name: bytes | str) -> str:
    """Return a name of a file as messages show it: in one line, with no codes."""
    text = encoded_name(name).decode("utf-8", "backslashreplace")
    return printable(text).replace("\n", "\\n")


def in_any_case(folder: str, name: str) -> str | None:
    """Return the path of a file in a folder by its name in any case, if any is.

    The same case counts before others.
    """
    try:
        there = sorted(os.listdir(folder))
    except OSError:
        there = [name] if os.path.lexists(os.path.join(folder, name)) else []
    found = [one for one in there if one.lower() == name.lower()]
    return os.path.join(folder, name if name in found else found[0]) if found else None


def listed(names: Iterable[bytes | str]) -> str:
    """Name the first of many things, and how many more there are."""
    names = list(names)
    more = f" and {len(names) - NUM_NAMED} more" if len(names) > NUM_NAMED else ""
    return ", ".join(map(shown, names[:NUM_NAMED])) + more


@dataclass(frozen=True)
class FileNames:
    """Many names in one piece of memory, which is pickled as fast as it is copied."""

    text: bytes
    ends: np.ndarray

    @classmethod
    def join(cls, names: list[bytes]) -> "FileNames":
        return cls(b"".join(names), np.cumsum([len(n) for n in names], dtype=np.int64))

    def first(self, num: int) -> "FileNames":
        """Return the first names, at most so many."""
        ends = self.ends[:num]
        return FileNames(self.text[: ends[-1] if len(ends) else 0], ends)

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, index: int) -> bytes:
        start = self.ends[index - 1] if index else 0
        return self.text[start : self.ends[index]]


@dataclass(frozen=True)
class ImageFileStore(WithTargets):
    """Image files below `root`, and their targets: numbers of classes, or columns.

    Attributes:
      target: of each file, (N,) or (N, columns).
      remarks: what its user should know of how it was found.
    """

    root: str
    names: FileNames
    target: np.ndarray
    facts: Mapping[str, Any]
    remarks: tuple[Remark, ...] = ()

    # They differ in size; those that are grey are read as colour.
    image_shape = (None, None, 3)

    def read(self, indices: np.ndarray) -> tuple[list[StoredFile], np.ndarray]:
        root = os.fsencode(self.root)
        paths = [os.path.join(root, self.names[i]) for i in indices.tolist()]
        files = [StoredFile(shown(path), read_unless_large(path)) for path in paths]
        return files, self.target[indices]


def digest(files: Iterable[tuple[bytes, int]]) -> str:
    """Return the SHA-256 of the names and the sizes of files, in their order."""
    found = hashlib.sha256()
    for name, size in files:
        found.update(b"%b\0%d\0" % (name, size))
    return found.hexdigest()


class Folder:
    """A folder that files are taken from, and nothing beyond it unless allowed.

    Its methods raise UnusableError for what cannot be used.

    Args:
      root: the folder; a link stands for what it leads to.
      config: the source, and whether links may lead out of the folder.
    """

    def __init__(self, root: str, config: DataConfig):
        self.source, self.root = config.source, root
        self.allow_outside = config.allow_outside
        self._real = os.path.realpath(os.fsencode(root))
        self._real_folder = functools.cache(os.path.realpath)
        if not os.path.isdir(self._real):
            what = "is no folder" if os.path.lexists(root) else "is not there"
            raise UserError(
                f"{self.source}: {shown(root)} {what}, seen from {os.getcwd()}"
            )

    def entries(self, name: bytes) -> list[os.DirEntry[bytes]]:
        """Return the entries of a folder, in the order of names."""
        path = os.path.join(self._real, name) if name else self._real
        try:
            with os.scandir(path) as found:
                return sorted(found, key=lambda entry: entry.name)
        except OSError as error:
            raise UnusableError(
                f"cannot read the folder {shown(path)} ({error.strerror})",
                "give yourself the right to read it",
            ) from None

    def size(self, name: bytes, entry: os.DirEntry[bytes] | None = None) -> int:
        """Return the size in bytes of a regular file; `entry` if it was listed."""
        if entry is None or entry.is_symlink():
            self.check_inside(name)
        path = os.path.join(self._real, name)
        try:
            status = os.stat(path) if entry is None else entry.stat()
        except (OSError, ValueError) as error:
            raise _missing(name, error) from None
        if not stat.S_ISREG(status.st_mode):
            raise UnusableError(
                f"{shown(name)} is no regular file",
                "take it out of the set",
                "that are no regular files",
            )
        return status.st_size

    def has(self, name: bytes) -> bool:
        """Whether there is something of this name."""
        try:
            return os.path.lexists(os.path.join(self._real, name))
        except ValueError:  # A NUL byte.
            return False

    def is_folder(self, name: bytes, entry: os.DirEntry[bytes]) -> bool:
        """Whether an entry is a folder."""
        try:
            found = entry.is_dir()
        except OSError as error:  # A link to itself.
            raise _missing(name, error) from None
        if found and entry.is_symlink():
            self.check_inside(name)
        return found

    def identity(self, name: bytes) -> tuple[int, int]:
        """Return the identity of a folder, the same by whatever path it is met."""
        try:
            status = os.stat(os.path.join(self._real, name))
        except OSError as error:
            raise _missing(name, error) from None
        return status.st_dev, status.st_ino

    def identities(self, name: bytes) -> set[tuple[int, int]]:
        """Return the identities of a folder and of all that its path goes through."""
        found = {self.identity(b"")}
        while name:
            found.add(self.identity(name))
            name = os.path.dirname(name)
        return found

    def relative(self, path: bytes) -> bytes:
        """Return an absolute path as seen from the folder, if it lies in it."""
        for root in (os.path.abspath(os.fsencode(self.root)), self._real):
            inside = path.removeprefix(os.path.join(root, b""))
            if inside != path:
                return inside
        return path

    def check_inside(self, name: bytes) -> None:
        """Refuse a file or folder that a link leads to outside, unless allowed."""
        if self.allow_outside:
            return
        try:
            # The folders on the way to the file are followed once each.
            folder, base = os.path.split(os.path.join(self._real, name))
            real = os.path.join(self._real_folder(folder), base)
            # A last part of `..` names no file.
            if base in (b"", b".", b"..") or os.path.islink(real):
                real = os.path.realpath(real)
        except (OSError, ValueError) as error:
            raise _missing(name, error) from None
        if not os.path.join(real, b"").startswith(os.path.join(self._real, b"")):
            raise UnusableError(
                f"{shown(name)} leads to {shown(real)}, outside of {shown(self.root)}",
                OUTSIDE,
                LEADS_OUT,
            )


def _missing(name: bytes, error: Exception) -> UnusableError:
    reason = getattr(error, "strerror", None) or error
    fix, cause = "mend it, or take it out", "that cannot be read"
    return UnusableError(f"{shown(name)}: {reason}", fix, cause)
