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
    digest,
    is_target,
    read_index,
)
from jaxtrain.data.shard_files import RecordFiles, ShardFiles, allow_open_files
from jaxtrain.data.stores import Images, Opened
from jaxtrain.errors import UserError

# Rows from here on are copied one by one: then a copy costs more than a call.
LARGE_ROW = 4096


class FlatFiles(ShardFiles):
    """A column: the flat files of its shards, mapped into memory."""

    def __init__(self, paths: list[Path], counts: list[int], column: Column):
        super().__init__(paths, counts)
        self._column = column

    def __getitem__(self, indices: np.ndarray) -> np.ndarray:
        """Return some rows, (n, ...), in any order."""
        if len(self._paths) == 1:
            # A third faster than indexing.
            return self.opened(0).take(indices, axis=0)
        shards, places = self.locate(indices)
        rows = np.empty((len(indices), *self._column.shape), self._column.dtype)
        if self._column.row_bytes >= LARGE_ROW:
            for i, (shard, place) in enumerate(zip(shards, places, strict=True)):
                rows[i] = self.opened(int(shard))[place]
        else:
            for shard in np.unique(shards):
                mine = shards == shard
                rows[mine] = self.opened(int(shard))[places[mine]]
        return rows

    def open(self, shard: int) -> np.ndarray:
        shape = (self._counts[shard], *self._column.shape)
        mapped = np.memmap(self._paths[shard], self._column.dtype, "r", shape=shape)
        # A plain array: memmap's own indexing takes longer.
        return mapped.view(np.ndarray)


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
    # Where the images are files, else None.
    records: RecordFiles | None = None

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
        return self._files(self.records, indices), target[TARGET]

    def _files(self, files: RecordFiles, indices: np.ndarray) -> list[StoredFile]:
        try:
            records = files[indices]
        except RuntimeError as error:
            raise UserError(
                f"{self.name}: its files are incomplete or damaged ({error}); which, "
                "tells python main.py data --verify"
            ) from error
        names = map(self._name, indices.tolist())
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
    allow_open_files(f"packed:{name}", sum(len(s.files) for s in index.shards))
    counts = [shard.num_examples for shard in index.shards]

    def paths(column: str) -> list[Path]:
        return [shard.path(folder, column) for shard in index.shards]

    columns = {
        column: FlatFiles(paths(column), counts, what)
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
    records = None if IMAGE in columns else RecordFiles(paths(IMAGE), counts)
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


def _put(tree: dict[str, Any], path: list[str], value: np.ndarray) -> None:
    """Put an array into nested dicts."""
    for name in path[:-1]:
        tree = tree.setdefault(name, {})
    tree[path[-1]] = value
