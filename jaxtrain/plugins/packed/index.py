"""Index of a packed data set, validated on reading.

File names consist of the shard number and the column, such as `00003.image`. The index
contains no paths, because paths could point outside the directory.
"""

import dataclasses
import hashlib
import json
import math
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jaxtrain.errors import UserError
from jaxtrain.invocation import command
from jaxtrain.json_files import typed
from jaxtrain.json_files.parse import parse
from jaxtrain.regular_file import read_bytes

INDEX = "index.json"
FORMAT, VERSION = "jaxtrain packed data", 1
# Largest size of an index in bytes.
MAX_INDEX_BYTES = 2**28
# Names of columns; the leaves of a nested target are named `target.NAME`.
IMAGE, STRATA, TARGET = "image", "strata", "target"
NAME = re.compile(r"[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)*")
SPLIT = re.compile(r"[^\[\]\s+]+")
KINDS = "biuf"
# (index, name, reason) of an unreadable image.
LeftOut = tuple[int, str, str]


@dataclass(frozen=True)
class Column:
    """Field with the same shape and dtype in all examples, stored in flat files.

    Attributes:
      dtype: Dtype as a NumPy type string, such as "|u1".
      shape: Shape of the value of one example.
    """

    dtype: str
    shape: tuple[int, ...]

    @property
    def row_bytes(self) -> int:
        return np.dtype(self.dtype).itemsize * math.prod(self.shape)


@dataclass(frozen=True)
class Shard:
    """Consecutive examples of a split, and (size, SHA-256) of each file by name."""

    number: int
    split: str
    num_examples: int
    files: Mapping[str, tuple[int, str]]

    def path(self, folder: Path, name: str) -> Path:
        return folder / f"{self.number:05d}.{name}"

    def check_files(self, folder: Path) -> None:
        """Check that all files are regular files of the recorded size.

        Raises:
          UserError: A file is missing, is not a regular file, or has another size.
        """
        for name, (size, _) in self.files.items():
            path = self.path(folder, name)
            try:
                found = path.lstat()
            except OSError as error:
                raise _damaged(path, str(error.strerror)) from None
            if not stat.S_ISREG(found.st_mode):
                raise _damaged(path, "not a regular file")
            if found.st_size != size:
                raise _damaged(
                    path, f"the file has {found.st_size} bytes, expected {size}"
                )


@dataclass(frozen=True)
class Index:
    """Index of a packed data set.

    Attributes:
      plan: Contents of plan.json, such as source and format.
      image_shape: Image shape (H, W, C); H and W are None if sizes differ.
      facts: Metadata of the source's store.
      columns: Columns by name; no `image` column for image files.
      splits: All splits, including empty ones.
      shards: Shards in the order of their examples, without empty shards.
      left_out: Unreadable images of each split, indexed from the start of the split.
    """

    plan: Mapping[str, Any]
    image_shape: tuple[int | None, int | None, int]
    facts: Mapping[str, Any]
    columns: Mapping[str, Column]
    splits: tuple[str, ...]
    shards: tuple[Shard, ...]
    left_out: Mapping[str, list[LeftOut]]

    @property
    def lengths(self) -> dict[str, list[int]]:
        """Split -> number of examples in each shard."""
        found: dict[str, list[int]] = {split: [] for split in self.splits}
        for shard in self.shards:
            found[shard.split].append(shard.num_examples)
        return found

    def describe(self) -> str:
        """Describe the number of examples per split."""
        return ", ".join(f"{split} {sum(n)}" for split, n in self.lengths.items())

    def to_json(self) -> str:
        values = {"format": FORMAT, "version": VERSION, **dataclasses.asdict(self)}
        return json.dumps(values, indent=1)


def read_index(folder: Path) -> Index:
    """Read the index of a packed data set, and check the size of every file.

    Raises:
      UserError: The index is missing or invalid, or the size of a file differs from the
        index.
    """
    path = folder / INDEX
    try:
        index = _parse(parse(read_bytes(path, MAX_INDEX_BYTES)))
    except FileNotFoundError:
        raise UserError(
            f"{folder} contains no packed data ({INDEX} is missing): pack the data "
            f"with\n  {command('data', '--pack', 'SOURCE', '--out', folder)}\nThe same "
            "command resumes after an interruption"
        ) from None
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None
    except (UserError, ValueError, TypeError, LookupError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise UserError(
            f"{path} is not an index of packed data ({reason}): copy the data again, "
            "or pack the data again"
        ) from None
    for shard in index.shards:
        shard.check_files(folder)
    return index


def _damaged(path: Path, reason: str) -> UserError:
    return UserError(
        f"{path}: {reason}; the packed data are damaged or were copied incompletely: "
        f"copy the data again, or remove {path.parent} and pack again"
    )


def tuples(value: Any) -> Any:
    """Restore the tuples of `facts`, which JSON stores as lists."""
    if isinstance(value, list):
        return tuple(map(tuples, value))
    if isinstance(value, dict):
        return {key: tuples(v) for key, v in value.items()}
    return value


def _parse(values: Any) -> Index:
    values = typed.convert(values, dict[str, Any], INDEX)
    for name, expected in (("format", FORMAT), ("version", VERSION)):
        found = values.pop(name)
        _expect(found == expected, f"{name} {found!r}")
    index = typed.convert(values, Index, INDEX)
    columns, splits, shards = index.columns, index.splits, index.shards
    for name, column in columns.items():
        _check_column(name, column)
    _expect(STRATA in columns, "no strata")
    targets = [name for name in columns if is_target(name)]
    _expect(targets, "no target")
    nested = any(name.startswith(f"{other}.") for name in targets for other in targets)
    _expect(not nested, "nested target columns")
    _expect(len(set(splits)) == len(splits), "a duplicate split")
    for split in splits:
        _expect(SPLIT.fullmatch(split), f"split {split!r}")
    for shard in shards:
        _check_shard(shard, columns, splits)
    order = [(splits.index(shard.split), shard.number) for shard in shards]
    numbers = {shard.number for shard in shards}
    _expect(order == sorted(order) and len(numbers) == len(order), "unordered shards")
    _expect(shards, "no shards")
    sizes = [size for size in index.image_shape if size is not None]
    _expect(all(map(_is_count, sizes)), "image_shape")
    if IMAGE in columns:
        same = columns[IMAGE].shape == index.image_shape
        _expect(same and columns[IMAGE].dtype == "|u1", "a wrong image shape")
    facts = tuples(index.facts)
    _expect(_is_count(facts.get("num_classes", 1)), "num_classes")
    names = facts.get("class_names", ())
    _expect(all(isinstance(name, str) for name in names), "class_names")
    return dataclasses.replace(index, facts=facts)


def is_target(name: str) -> bool:
    """Whether a column is `target`, or a leaf such as `target.mask`."""
    return name.partition(".")[0] == TARGET


def _check_column(name: str, column: Column) -> None:
    _expect(NAME.fullmatch(name), f"column {name!r}")
    _expect(name in (IMAGE, STRATA) or is_target(name), f"column {name!r}")
    dtype, shape = column.dtype, column.shape
    _expect(len(dtype) <= 3 and np.dtype(dtype).kind in KINDS, f"dtype {dtype!r}")
    _expect(len(shape) <= 8 and all(map(_is_count, shape)), f"shape {shape}")


def _check_shard(
    shard: Shard, columns: Mapping[str, Column], splits: tuple[str, ...]
) -> None:
    number, num = shard.number, shard.num_examples
    _expect(number == 0 or _is_count(number), f"shard {number!r}")
    _expect(_is_count(num), f"{num!r} examples")
    _expect(shard.split in splits, f"split {shard.split!r}")
    _expect(shard.files.keys() == {IMAGE, *columns}, f"files {sorted(shard.files)}")
    for name, (size, _) in shard.files.items():
        _expect(_is_count(size), f"file {name}")
        if name in columns:
            _expect(size == num * columns[name].row_bytes, f"{size} bytes of {name}")


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 < value < 2**53


def _expect(good: Any, what: str) -> None:
    if not good:
        raise ValueError(what)


def digest(path: Path) -> str:
    """Compute the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
