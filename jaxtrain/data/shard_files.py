"""The files of a sharded set as one sequence of examples, read at any place."""

from collections.abc import Iterator, Sequence
from os import PathLike
from typing import Any

import numpy as np

from jaxtrain.errors import UserError
from jaxtrain.system_errors import raise_file_limit

# Descriptors that the rest of a process needs.
SPARE = 256
# No buffers or threads of a reader's own: examples lie anywhere.
READER_OPTIONS = "readahead_buffer_size:0,max_parallelism:0"
# Bytes that a reader fetches at once.
READER_BUFFER = 2**15


class ShardFiles:
    """Files of shards, one after the other, opened when they are first read.

    Picklable: a copy opens the files anew.

    Args:
      counts: Number of examples in each file.
    """

    def __init__(self, paths: Sequence[str | PathLike[str]], counts: Sequence[int]):
        self._paths, self._counts = list(paths), list(counts)
        self._ends = np.cumsum(self._counts)
        self._open: dict[int, Any] = {}

    def by_shard(
        self, indices: np.ndarray
    ) -> Iterator[tuple[Any, np.ndarray, np.ndarray]]:
        """Yield what reads a shard, which of the indices it has, and their places."""
        shards = np.searchsorted(self._ends, indices, side="right")
        places = indices - np.concatenate([[0], self._ends])[shards]
        for shard in np.unique(shards).tolist():
            mine = np.flatnonzero(shards == shard)
            yield self.opened(shard), mine, places[mine]

    def opened(self, shard: int) -> Any:
        """Return the reader of the file of a shard."""
        if shard not in self._open:
            self._open[shard] = self.open(shard)
        return self._open[shard]

    def open(self, shard: int) -> Any:
        """Open the file of a shard."""
        raise NotImplementedError

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_open": {}}


class RecordFiles(ShardFiles):
    """Records of any length, in files of array_record.

    Its own data source starts a thread for each shard of a batch: with 64 shards, a
    record of 30 KB takes three times the CPU time (benchmarks/packed.py).
    """

    def __getitem__(self, indices: np.ndarray) -> list[bytes]:
        """Return some records, in any order.

        Raises:
          RuntimeError: A file is damaged, which checksums tell, or incomplete.
        """
        records = [b""] * len(indices)
        for reader, mine, places in self.by_shard(indices):
            for i, record in zip(mine, reader.read(places.tolist()), strict=False):
                records[i] = record
        if not all(records):
            raise RuntimeError("records are missing")
        return records

    def open(self, shard: int) -> Any:
        from array_record.python.array_record_module import ArrayRecordReader

        return ArrayRecordReader(
            str(self._paths[shard]),
            options=READER_OPTIONS,
            file_reader_buffer_size=READER_BUFFER,
        )


def allow_open_files(name: str, num_files: int) -> None:
    """Let this process, and the data workers that it starts, hold files open.

    Raises:
      UserError: The system does not let it open so many.
    """
    limit = raise_file_limit()
    if limit < num_files + SPARE:
        raise UserError(
            f"{name} has {num_files} files, and a process may open {limit} here "
            "(`ulimit -Hn`): raise that limit"
        )
