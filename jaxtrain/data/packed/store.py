"""Packed data as a store: `packed:DIR`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from jaxtrain.config import DataConfig
from jaxtrain.data.files import StoredFile
from jaxtrain.data.packed.index import (
    IMAGE,
    STRATA,
    TARGET,
    Column,
    Index,
    Shard,
    digest,
    is_target,
    read_index,
)
from jaxtrain.data.stores import Images, Opened
from jaxtrain.errors import UserError

# Rows from here on are copied one by one: then a copy costs more than a call.
LARGE_ROW = 4096


class FlatFiles:
    """A column: the flat files of its shards, mapped into memory when first read.

    Picklable: a copy maps the files anew.
    """

    def __init__(self, paths: list[Path], counts: list[int], column: Column):
        self._paths, self._counts, self._column = paths, counts, column
        self._ends = np.cumsum(counts)
        self._maps: dict[int, np.ndarray] = {}

    def __getitem__(self, indices: np.ndarray) -> np.ndarray:
        """Return some rows, (n, ...), in any order."""
        if len(self._paths) == 1:
            # A third faster than indexing.
            return self._map(0).take(indices, axis=0)
        shards = np.searchsorted(self._ends, indices, side="right")
        places = indices - np.concatenate([[0], self._ends])[shards]
        rows = np.empty((len(indices), *self._column.shape), self._column.dtype)
        if self._column.row_bytes >= LARGE_ROW:
            for i, (shard, place) in enumerate(zip(shards, places, strict=True)):
                rows[i] = self._map(int(shard))[place]
        else:
            for shard in np.unique(shards):
                mine = shards == shard
                rows[mine] = self._map(int(shard))[places[mine]]
        return rows

    def _map(self, shard: int) -> np.ndarray:
        if shard not in self._maps:
            shape = (self._counts[shard], *self._column.shape)
            mapped = np.memmap(self._paths[shard], self._column.dtype, "r", shape=shape)
            # A plain array: memmap's own indexing takes longer.
            self._maps[shard] = mapped.view(np.ndarray)
        return self._maps[shard]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_maps": {}}


@dataclass(frozen=True)
class PackedStore:
    """All splits of a packed set."""

    # As messages call it.
    name: str
    # Where the examples of each split are.
    places: Mapping[str, range]
    image_shape: tuple[int | None, int | None, int]
    facts: Mapping[str, Any]
    columns: Mapping[str, FlatFiles] = field(repr=False)
    # array_record's data source where the images are files, else None.
    records: Any = None

    @property
    def in_memory(self) -> bool:
        return self.records is None

    def strata(self, indices: np.ndarray) -> np.ndarray:
        return self.columns[STRATA][indices]

    def read(self, indices: np.ndarray) -> tuple[Images, Any]:
        target: Any = {}
        for name, column in self.columns.items():
            if is_target(name):
                _put(target, name.split("."), column[indices])
        if self.records is None:
            return self.columns[IMAGE][indices], target[TARGET]
        return self._files(indices), target[TARGET]

    def _files(self, indices: np.ndarray) -> list[StoredFile]:
        numbers = indices.tolist()
        try:
            records = self.records.__getitems__(numbers)
            if not all(records):
                raise RuntimeError("records are missing")
        except RuntimeError as error:  # The format has checksums.
            raise UserError(
                f"{self.name}: its files are incomplete or damaged ({error}); which, "
                "tells python main.py data --verify"
            ) from error
        names = map(self._name, numbers)
        return [StoredFile(n, data) for n, data in zip(names, records, strict=True)]

    def _name(self, index: int) -> str:
        """Return what messages call an example."""
        for split, places in self.places.items():
            if index in places:
                place = places.index(index)
                return f"split {split!r} of {self.name}: image {place}"
        raise IndexError(index)


def open_packed(name: str, config: DataConfig) -> Opened:
    """Open the folder of a packed set.

    Raises:
      UserError: it holds none, or one that is damaged.
    """
    if not name:
        raise UserError(f"data.source = {config.source!r}: expected packed:DIR")
    folder = Path(name).expanduser()
    index = read_index(folder)
    counts = [shard.num_examples for shard in index.shards]
    columns = {
        column: FlatFiles([s.path(folder, column) for s in index.shards], counts, what)
        for column, what in index.columns.items()
    }
    splits: dict[str, list[np.ndarray]] = {split: [] for split in index.splits}
    start, places = 0, {}
    for shard in index.shards:
        stop = start + shard.num_examples
        splits[shard.split].append(np.arange(start, stop))
        first = places[shard.split].start if shard.split in places else start
        places[shard.split] = range(first, stop)
        start = stop
    records = None if IMAGE in columns else _open_records(folder, index)
    store = PackedStore(
        f"packed:{name}", places, index.image_shape, index.facts, columns, records
    )
    return store, splits


def verify(folder: Path) -> Index:
    """Read all files of a packed set, and compare them with their digests.

    Raises:
      UserError: some are not what was written.
    """
    index = read_index(folder)
    damaged = [
        str(shard.path(folder, name))
        for shard in index.shards
        for name, (_, sha256) in shard.files.items()
        if digest(shard.path(folder, name)) != sha256
    ]
    if damaged:
        raise UserError(
            f"{len(damaged)} files of {folder} are not what was written: copy them "
            "again, or remove the folder and pack again\n  " + "\n  ".join(damaged)
        )
    return index


@dataclass
class _RecordFile:
    """A file as array_record takes it, which then need not be opened to be counted."""

    filename: str
    examples_in_shard: int
    take: int
    skip: int = 0


def _open_records(folder: Path, index: Index) -> Any:
    from array_record.python.array_record_data_source import ArrayRecordDataSource

    def describe(shard: Shard) -> _RecordFile:
        num, path = shard.num_examples, shard.path(folder, IMAGE)
        return _RecordFile(str(path), num, num)

    return ArrayRecordDataSource(list(map(describe, index.shards)))


def _put(tree: dict[str, Any], path: list[str], value: np.ndarray) -> None:
    """Put an array into nested dicts."""
    for name in path[:-1]:
        tree = tree.setdefault(name, {})
    tree[path[-1]] = value
