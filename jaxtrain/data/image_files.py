"""Image files below a directory: compact lists of names, and safe reading.

Files are untrusted: only regular files inside the directory are opened.
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

# Remedy for files outside the directory of a data set.
OUTSIDE = (
    "copy the file into the directory of the data set, give a parent directory of all "
    "files, or, if you trust the data set, set data.allow_outside to True "
    "(--allow-outside of the command new)"
)

# `UnusableError.cause` of files outside the directory.
LEADS_OUT = "outside the directory of the data set"


def encoded_name(name: bytes | str) -> bytes:
    """Encode a file name from a list or table as UTF-8, independent of the locale."""
    name = os.fspath(name)
    return name if isinstance(name, bytes) else name.encode("utf-8", "surrogateescape")


def shown(name: bytes | str) -> str:
    """Format a file name for messages: on one line, without control characters."""
    text = encoded_name(name).decode("utf-8", "backslashreplace")
    return printable(text).replace("\n", "\\n")


def in_any_case(folder: str, name: str) -> str | None:
    """Return the path of a file, matched case-insensitively, or None if absent.

    An exact match is preferred.
    """
    try:
        there = sorted(os.listdir(folder))
    except OSError:
        there = [name] if os.path.lexists(os.path.join(folder, name)) else []
    same = [one for one in there if one.lower() == name.lower()]
    return os.path.join(folder, name if name in same else same[0]) if same else None


def listed(names: Iterable[bytes | str]) -> str:
    """Format the first names of a sequence, as in `a.png, b.png and 3 more`."""
    names = list(names)
    more = f" and {len(names) - NUM_NAMED} more" if len(names) > NUM_NAMED else ""
    return ", ".join(map(shown, names[:NUM_NAMED])) + more


@dataclass(frozen=True)
class FileNames:
    """A sequence of file names in one buffer, compact and fast to pickle.

    Attributes:
      text: Concatenated file names.
      ends: End offset of each name in `text`, int64 (N,).
    """

    text: bytes
    ends: np.ndarray

    @classmethod
    def join(cls, names: list[bytes]) -> "FileNames":
        return cls(b"".join(names), np.cumsum([len(n) for n in names], dtype=np.int64))

    def first(self, num: int) -> "FileNames":
        """Return at most the first `num` names."""
        ends = self.ends[:num]
        return FileNames(self.text[: ends[-1] if len(ends) else 0], ends)

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, index: int) -> bytes:
        start = self.ends[index - 1] if index else 0
        return self.text[start : self.ends[index]]


@dataclass(frozen=True)
class ImageFileStore(WithTargets):
    """Image files below `root`, and their targets.

    Attributes:
      root: Directory of the files.
      names: Paths relative to `root`.
      target: Class index of each file, (N,), or numeric targets, (N, columns).
      facts: Metadata of the data set (`Store.facts`).
      remarks: Remarks on the data set, for users.
    """

    root: str
    names: FileNames
    target: np.ndarray
    facts: Mapping[str, Any]
    remarks: tuple[Remark, ...] = ()

    # Images may differ in size. Grey images are converted to colour.
    image_shape = (None, None, 3)

    def read(self, indices: np.ndarray) -> tuple[list[StoredFile], np.ndarray]:
        root = os.fsencode(self.root)
        paths = [os.path.join(root, self.names[i]) for i in indices.tolist()]
        files = [StoredFile(shown(path), read_unless_large(path)) for path in paths]
        return files, self.target[indices]


def digest(files: Iterable[tuple[bytes, int]]) -> str:
    """Return the SHA-256 of the names and sizes of files, in order."""
    sha256 = hashlib.sha256()
    for name, size in files:
        sha256.update(b"%b\0%d\0" % (name, size))
    return sha256.hexdigest()


class Folder:
    """A directory of files; nothing outside it is read unless allowed.

    The methods raise UnusableError for unusable files.

    Args:
      root: Path of the directory; symbolic links are resolved.
      config: Data section of the config, for `source` and `allow_outside`.
    """

    def __init__(self, root: str, config: DataConfig):
        self.source, self.root = config.source, root
        self.allow_outside = config.allow_outside
        self._real = os.path.realpath(os.fsencode(root))
        self._real_folder = functools.cache(os.path.realpath)
        if not os.path.isdir(self._real):
            what = "is not a directory" if os.path.lexists(root) else "does not exist"
            raise UserError(
                f"{self.source}: {shown(root)} {what} (relative to {os.getcwd()}): "
                "give an existing directory"
            )

    def entries(self, name: bytes) -> list[os.DirEntry[bytes]]:
        """Return the entries of a directory, sorted by name."""
        path = os.path.join(self._real, name) if name else self._real
        try:
            with os.scandir(path) as entries:
                return sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            raise UnusableError(
                f"cannot read the directory {shown(path)} ({error.strerror})",
                "change the permissions",
            ) from None

    def size(self, name: bytes, entry: os.DirEntry[bytes] | None = None) -> int:
        """Return the size of a regular file in bytes.

        Args:
          name: Path relative to the directory.
          entry: Directory entry of the file, if known, which saves a system call.
        """
        if entry is None or entry.is_symlink():
            self.check_inside(name)
        path = os.path.join(self._real, name)
        try:
            status = os.stat(path) if entry is None else entry.stat()
        except (OSError, ValueError) as error:
            raise _missing(name, error) from None
        if not stat.S_ISREG(status.st_mode):
            raise UnusableError(
                f"{shown(name)} is not a regular file",
                "remove the file from the data set",
                "that are not regular files",
            )
        return status.st_size

    def has(self, name: bytes) -> bool:
        """Whether a path exists."""
        try:
            return os.path.lexists(os.path.join(self._real, name))
        except ValueError:  # The path contains a NUL byte.
            return False

    def is_folder(self, name: bytes, entry: os.DirEntry[bytes]) -> bool:
        """Whether a directory entry is a directory."""
        try:
            is_folder = entry.is_dir()
        except OSError as error:  # A symbolic link may point to itself.
            raise _missing(name, error) from None
        if is_folder and entry.is_symlink():
            self.check_inside(name)
        return is_folder

    def identity(self, name: bytes) -> tuple[int, int]:
        """Return (device, inode) of a directory, to recognize it under other paths."""
        try:
            status = os.stat(os.path.join(self._real, name))
        except OSError as error:
            raise _missing(name, error) from None
        return status.st_dev, status.st_ino

    def identities(self, name: bytes) -> set[tuple[int, int]]:
        """Return the `identity` of a directory, and of its parents in the data set."""
        identities = {self.identity(b"")}
        while name:
            identities.add(self.identity(name))
            name = os.path.dirname(name)
        return identities

    def relative(self, path: bytes) -> bytes:
        """Make an absolute path in the directory relative; return others unchanged."""
        for root in (os.path.abspath(os.fsencode(self.root)), self._real):
            inside = path.removeprefix(os.path.join(root, b""))
            if inside != path:
                return inside
        return path

    def check_inside(self, name: bytes) -> None:
        """Raise UnusableError if a path resolves outside the directory, unless allowed.

        Args:
          name: Path relative to the directory.
        """
        if self.allow_outside:
            return
        try:
            # Resolved parent directories are cached, to save system calls.
            folder, base = os.path.split(os.path.join(self._real, name))
            real = os.path.join(self._real_folder(folder), base)
            # A path may end in `..`, which is not a file name.
            if base in (b"", b".", b"..") or os.path.islink(real):
                real = os.path.realpath(real)
        except (OSError, ValueError) as error:
            raise _missing(name, error) from None
        if not os.path.join(real, b"").startswith(os.path.join(self._real, b"")):
            raise UnusableError(
                f"{shown(name)} resolves to {shown(real)}, outside {shown(self.root)}",
                OUTSIDE,
                LEADS_OUT,
            )


def _missing(name: bytes, error: Exception) -> UnusableError:
    reason = getattr(error, "strerror", None) or error
    fix, cause = "repair or remove the file", "that cannot be read"
    return UnusableError(f"{shown(name)}: {reason}", fix, cause)
