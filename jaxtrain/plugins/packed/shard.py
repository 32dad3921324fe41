"""Atomic writing of a shard of packed data."""

import contextlib
import errno
import json
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jaxtrain import atomic_file
from jaxtrain.data.files import StoredFile, UnreadableError
from jaxtrain.data.stores import Store
from jaxtrain.errors import UserError
from jaxtrain.json_files import typed
from jaxtrain.json_files.parse import parse
from jaxtrain.plugins.packed import index
from jaxtrain.plugins.packed.convert import Form
from jaxtrain.plugins.packed.index import IMAGE, STRATA, TARGET, Column, LeftOut, Shard
from jaxtrain.regular_file import read_bytes

# Number of examples per chunk: the images of a chunk are in memory together.
CHUNK = 64
# Groups of one record allow random access. Records are not compressed, because zstd
# does not shrink JPEGs and doubles the time of reading.
RECORD_OPTIONS = "group_size:1,uncompressed"


@dataclass(frozen=True)
class Note:
    """Description of a complete shard, from which the index is built.

    Attributes:
      shard: Examples and files of the shard; an empty shard has no files.
      left_out: Unreadable images, indexed from the first example of the shard.
    """

    shard: Shard
    left_out: list[LeftOut]


def note_path(folder: Path, number: int) -> Path:
    return folder / f"{number:05d}.json"


def read_note(folder: Path, number: int) -> Note | None:
    """Read the note of a shard, or None if the shard is incomplete."""
    try:
        values = parse(read_bytes(note_path(folder, number)))
        note = typed.convert(values, Note, "")
        note.shard.check_files(folder)
        return note
    except (OSError, ValueError):
        return None


@dataclass(frozen=True)
class ShardWriter:
    """Writer of a store's examples to shards; a thread pool converts the images."""

    store: Store
    form: Form
    folder: Path
    pool: Executor

    def columns(self) -> dict[str, Column]:
        """Columns of the data set by name; image files are not a column."""
        first = np.zeros(1, np.int64)
        rows = self._rows(first, self.store.read(first)[1])
        found = {n: Column(a.dtype.str, a.shape[1:]) for n, a in rows.items()}
        image = self.form.column
        return found if image is None else {IMAGE: image, **found}

    def write(self, number: int, split: str, indices: np.ndarray) -> Note:
        """Write a shard, then its note, which marks the shard as complete."""
        shard, parts, files = Shard(number, split, 0, {}), {}, {}
        with contextlib.ExitStack() as renames:
            for name in dict.fromkeys([IMAGE, *self.columns()]):
                replacing = atomic_file.replacing(shard.path(self.folder, name))
                parts[name] = renames.enter_context(replacing)
            left_out = self._fill(parts, indices)
            num = len(indices) - len(left_out)
            for name, part in parts.items() if num else ():
                files[name] = part.stat().st_size, index.digest(part)
        for name in () if num else parts:
            shard.path(self.folder, name).unlink()
        note = Note(Shard(number, split, num, files), left_out)
        atomic_file.write(note_path(self.folder, number), json.dumps(asdict(note)))
        return note

    def _fill(self, parts: Mapping[str, Path], indices: np.ndarray) -> list[LeftOut]:
        """Write the files of a shard; return its unreadable images."""
        writers: dict[str, Any] = {}
        for name, part in parts.items():
            records = name == IMAGE and self.form.column is None
            writers[name] = _RecordWriter(part) if records else part.open("wb")
        left_out: list[LeftOut] = []
        for start in range(0, len(indices), CHUNK):
            bad = self._add(writers, indices[start : start + CHUNK])
            left_out += [(start + place, name, reason) for place, name, reason in bad]
        for writer in writers.values():
            writer.close()
        return left_out

    def _add(self, writers: Mapping[str, Any], some: np.ndarray) -> list[LeftOut]:
        """Write a chunk of examples; skip and return unreadable images."""
        stored, targets = self.store.read(some)
        left_out, readable = [], np.ones(len(some), bool)
        for i, made in enumerate(self.pool.map(self._convert, stored)):
            if isinstance(made, bytes):
                writers[IMAGE].write(made)
                continue
            image = stored[i]
            name = image.name if isinstance(image, StoredFile) else f"image {some[i]}"
            left_out.append((i, name, str(made)))
            readable[i] = False
        for name, rows in self._rows(some, targets).items():
            writers[name].write(np.ascontiguousarray(rows[readable]).tobytes())
        return left_out

    def _convert(self, image: StoredFile | np.ndarray) -> bytes | UnreadableError:
        try:
            return self.form.convert(image)
        except UnreadableError as error:
            return error

    def _rows(self, indices: np.ndarray, targets: Any) -> dict[str, np.ndarray]:
        return {**_flatten(TARGET, targets), STRATA: self.store.strata(indices)}


class _RecordWriter:
    """Writer of an array_record file; converts the library's errors to OSError."""

    def __init__(self, path: Path):
        from array_record.python.array_record_module import ArrayRecordWriter

        self._writer = ArrayRecordWriter(str(path), RECORD_OPTIONS)

    def write(self, data: bytes) -> None:
        self._call(self._writer.write, data)

    def close(self) -> None:
        self._call(self._writer.close)

    def _call(self, method: Callable[..., None], *arguments: bytes) -> None:
        try:
            method(*arguments)
        except RuntimeError as error:
            raise OSError(errno.EIO, str(error)) from error


def _flatten(name: str, target: Any) -> dict[str, np.ndarray]:
    """Flatten a target (an array, or nested dicts of arrays) to arrays by name."""
    if isinstance(target, dict):
        found: dict[str, np.ndarray] = {}
        for key, value in target.items():
            found |= _flatten(f"{name}.{key}", value)
        return found
    good = isinstance(target, np.ndarray) and target.dtype.kind in index.KINDS
    if not (good and index.NAME.fullmatch(name)):
        raise UserError(
            f"{name} is {type(target).__name__}: expected an array of numbers, or a "
            "dict of arrays whose keys contain only letters, digits and _"
        )
    return {name: target}
