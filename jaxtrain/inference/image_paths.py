"""Expansion of command-line arguments (paths, directories, patterns, `-`) to files."""

import glob
import io
import os
import sys
from collections.abc import Sequence
from typing import BinaryIO

from jaxtrain.data.file_kind import IMAGES, FileKind
from jaxtrain.data.image_files import FileNames, shown
from jaxtrain.errors import UserError

# Argument that stands for file names from standard input.
STDIN = "-"


def expand_paths(
    words: Sequence[str],
    stdin: BinaryIO | None = None,
    kind: FileKind = IMAGES,
    unread: list[bytes] | None = None,
) -> FileNames:
    """Expand arguments to paths of image files, sorted within each argument.

    An argument is one of:

    - a file of any extension;
    - a directory, which is searched recursively for non-hidden files with the
      extensions of `kind`;
    - a pattern such as `photos/**/*.jpg`;
    - `-`, for file names from standard input.

    Args:
      words: Arguments of the command line.
      stdin: Stream of file names, separated by newlines, or by NUL as from `find
        -print0`. Defaults to `sys.stdin`. Missing files are reported when they are
        read.
      kind: Type of the files to search for in directories.
      unread: Output list. The paths of files in directories are appended if their
        formats are unsupported.

    Raises:
      UserError: An argument matches no image, or two arguments match the same image.
    """
    if not words:
        raise UserError(
            "no images were given: give files, directories, patterns such as "
            "'photos/*.jpg', or '-' for file names from standard input"
        )
    if words.count(STDIN) > 1:
        raise UserError(
            "'-' is given twice, but standard input can be read only once: give one '-'"
        )
    names, unread = list[bytes](), [] if unread is None else unread
    for word in words:
        names += _read_stdin(stdin) if word == STDIN else _expand(word, kind, unread)
    _check_distinct(names)
    return FileNames.join(names)


def _read_stdin(stdin: BinaryIO | None) -> list[bytes]:
    # `sys.stdin` is None if the shell has closed it.
    default = sys.stdin.buffer if sys.stdin else io.BytesIO()
    text = (stdin or default).read()
    names = [name for name in text.split(b"\0" if b"\0" in text else b"\n") if name]
    if not names:
        raise UserError(
            "- : standard input has no file names: give one file name per line"
        )
    return names


def _expand(word: str, kind: FileKind, unread: list[bytes]) -> list[bytes]:
    # The name of an existing file may look like a pattern.
    if os.path.lexists(word):
        path = os.fsencode(word)
        return _files_of_folder(path, kind, unread) if os.path.isdir(path) else [path]
    if not glob.has_magic(word):
        raise UserError(
            f"{shown(word)}: no such file or directory (relative to "
            f"{shown(os.getcwd())}): correct the path"
        )
    matches = sorted(os.fsencode(path) for path in glob.iglob(word, recursive=True))
    if not matches:
        raise UserError(
            f"{shown(word)} matches no file (relative to {shown(os.getcwd())}): "
            "correct the pattern"
        )
    names = []
    for path in matches:
        if not os.path.isdir(path):
            names.append(path)
        # `**` has already matched the files in the directory.
        elif "**" not in word:
            names += _files_below(path, kind, unread)
    if not names:
        raise UserError(
            f"{shown(word)} matches only directories without {kind.noun}s: correct the "
            f"pattern{_describe_unread(kind, unread)}"
        )
    return names


def _files_of_folder(path: bytes, kind: FileKind, unread: list[bytes]) -> list[bytes]:
    names = _files_below(path, kind, unread)
    if not names:
        known = " ".join(kind.endings())
        raise UserError(
            f"{shown(path)} contains no {kind.noun}: expected files with the extension "
            f"{known}{_describe_unread(kind, unread)}"
        )
    return names


def _describe_unread(kind: FileKind, unread: list[bytes]) -> str:
    return "".join(f"; {r.title}: {r.text}" for r in kind.passed_over(unread))


def _files_below(path: bytes, kind: FileKind, unread: list[bytes]) -> list[bytes]:
    found = []
    for folder, folders, names in os.walk(path, onerror=_raise_unreadable):
        folders[:] = [name for name in folders if not name.startswith(b".")]
        files = [name for name in names if not name.startswith(b".")]
        found += [os.path.join(folder, name) for name in files if kind.is_read(name)]
        unread += [os.path.join(folder, name) for name in files if kind.is_unread(name)]
    return sorted(found)


def _raise_unreadable(error: OSError) -> None:
    raise UserError(
        f"{shown(error.filename)} cannot be read ({error.strerror}): correct the "
        "permissions"
    )


def _check_distinct(names: Sequence[bytes]) -> None:
    """Raise UserError if two names have the same absolute path."""
    # Try a set of hashes first: a set of a million absolute paths takes much memory.
    if len({hash(os.path.abspath(name)) for name in names}) == len(names):
        return
    known: dict[bytes, bytes] = {}
    for name in names:
        other = known.setdefault(os.path.abspath(name), name)
        if other is not name:
            also = "" if other == name else f", also as {shown(other)}"
            raise UserError(f"{shown(name)} is given twice{also}: give each file once")


def common_folder(names: FileNames) -> bytes:
    """Return the deepest common directory of all files."""
    common = os.path.dirname(os.path.abspath(names[0]))
    for i in range(1, len(names)):
        path = os.path.abspath(names[i])
        if not path.startswith(os.path.join(common, b"")):
            common = os.path.commonpath([common, os.path.dirname(path)])
    return common
