"""Store of a packed data set: `packed:DIR`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from jaxtrain.config import DataConfig
from jaxtrain.data.files import StoredFile
from jaxtrain.data.problems import Remark
from jaxtrain.data.shard_files import RecordFiles, ShardFiles, allow_open_files
from jaxtrain.data.slices import SplitRanges, number_examples
from jaxtrain.data.stores import Images, Opened
from jaxtrain.errors import UserError
from jaxtrain.invocation import command
from jaxtrain.plugins.packed.index import (
    IMAGE,
    STRATA,
    TARGET,
    Column,
    Index,
    digest,
    is_target,
    read_index,
)

# Array rows of at least this many bytes are copied one by one in Python: the copy then
# takes longer than the overhead of an iteration.
LARGE_ROW = 4096


class FlatFiles(ShardFiles):
    """Column in memory-mapped flat files, with one file per shard."""

    def __init__(self, paths: list[Path], counts: list[int], column: Column):
        super().__init__(paths, counts)
        self._column = column

    def __getitem__(self, indices: np.ndarray) -> np.ndarray:
        """Read the values of examples, (n, ...), in the order of `indices`."""
        if len(self._paths) == 1:
            # np.take takes a third less time than indexing.
            return self.opened(0).take(indices, axis=0)
        rows = np.empty((len(indices), *self._column.shape), self._column.dtype)
        for mapped, mine, places in self.by_shard(indices):
            if self._column.row_bytes < LARGE_ROW:
                rows[mine] = mapped[places]
                continue
            for i, place in zip(mine, places, strict=True):
                rows[i] = mapped[place]
        return rows

    def open(self, shard: int) -> np.ndarray:
        shape = (self._counts[shard], *self._column.shape)
        mapped = np.memmap(self._paths[shard], self._column.dtype, "r", shape=shape)
        # Convert to a plain array, because indexing of np.memmap is slower.
        return mapped.view(np.ndarray)


@dataclass(frozen=True)
class PackedStore:
    """Store of all splits of a packed data set."""

    places: SplitRanges
    image_shape: tuple[int | None, int | None, int]
    facts: Mapping[str, Any]
    columns: Mapping[str, FlatFiles] = field(repr=False)
    # Image files; None for image arrays.
    records: RecordFiles | None = None
    remarks: tuple[Remark, ...] = ()

    @property
    def in_memory(self) -> bool:
        return self.records is None

    def strata(self, indices: np.ndarray) -> np.ndarray:
        return self.columns[STRATA][indices]

    def targets(self, indices: np.ndarray) -> Any:
        target: Any = {}
        for name, column in self.columns.items():
            if is_target(name):
                _put(target, name.split("."), column[indices])
        return target[TARGET]

    def read(self, indices: np.ndarray) -> tuple[Images, Any]:
        target = self.targets(indices)
        if self.records is None:
            return self.columns[IMAGE][indices], target
        try:
            records = self.records[indices]
        except RuntimeError as error:
            folder = self.places.source.removeprefix("packed:")
            raise UserError(
                f"{self.places.source}: files are incomplete or damaged ({error}); "
                f"list the damaged files with {command('data', '--verify', folder)}"
            ) from error
        names = map(self.places.name, indices.tolist())
        return list(map(StoredFile, names, records)), target


def open_packed(name: str, config: DataConfig) -> Opened:
    """Open a packed data set.

    Raises:
      UserError: The data set is missing or damaged.
    """
    folder, source = Path(name).expanduser(), f"packed:{name}"
    index = read_index(folder)
    allow_open_files(source, sum(len(shard.files) for shard in index.shards))
    places, splits = number_examples(source, index.lengths)
    counts = [shard.num_examples for shard in index.shards]
    paths = {
        name: [shard.path(folder, name) for shard in index.shards]
        for name in (IMAGE, *index.columns)
    }
    columns = {n: FlatFiles(paths[n], counts, c) for n, c in index.columns.items()}
    records = None if IMAGE in columns else RecordFiles(paths[IMAGE], counts)
    shape, facts = index.image_shape, index.facts
    return PackedStore(places, shape, facts, columns, records), splits


def verify(folder: Path) -> Index:
    """Verify the checksums of all files of a packed data set.

    Raises:
      UserError: A file is damaged.
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
            f"--verify {folder}: files that do not match their checksums: "
            f"{len(damaged)}. Copy these files again, or remove the directory and pack "
            "again\n  " + "\n  ".join(damaged)
        )
    return index


def _put(tree: dict[str, Any], path: list[str], value: np.ndarray) -> None:
    """Insert an array into nested dicts."""
    for name in path[:-1]:
        tree = tree.setdefault(name, {})
    tree[path[-1]] = value
