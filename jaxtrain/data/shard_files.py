"""Random access to the examples of a sharded data set."""

from collections.abc import Iterator, Sequence
from os import PathLike
from typing import Any

import numpy as np

from jaxtrain.errors import UserError
from jaxtrain.system_errors import raise_file_limit

# Number of file descriptors to reserve for the rest of the process.
SPARE = 256
# Reader options that disable read-ahead and threads, because access is random.
READER_OPTIONS = "readahead_buffer_size:0,max_parallelism:0"
# Buffer size of a reader, in bytes.
READER_BUFFER = 2**15


class ShardFiles:
    """Files of consecutive shards, opened on first use.

    Instances are picklable: an unpickled copy reopens the files.

    Args:
      paths: Paths of the files.
      counts: Number of examples in each file.
    """

    def __init__(self, paths: Sequence[str | PathLike[str]], counts: Sequence[int]):
        self._paths, self._counts = list(paths), list(counts)
        self._ends = np.cumsum(self._counts)
        self._open: dict[int, Any] = {}

    def by_shard(
        self, indices: np.ndarray
    ) -> Iterator[tuple[Any, np.ndarray, np.ndarray]]:
        """Group example indices by shard.

        Args:
          indices: Indices of the examples in the data set, (n,).

        Yields:
          Reader of a shard; positions of the shard's examples in `indices`; and indices
          of the same examples within the shard.
        """
        shards = np.searchsorted(self._ends, indices, side="right")
        places = indices - np.concatenate([[0], self._ends])[shards]
        for shard in np.unique(shards).tolist():
            positions = np.flatnonzero(shards == shard)
            yield self.opened(shard), positions, places[positions]

    def opened(self, shard: int) -> Any:
        """Return the reader of a shard, opened on first use."""
        if shard not in self._open:
            self._open[shard] = self.open(shard)
        return self._open[shard]

    def open(self, shard: int) -> Any:
        """Open the file of a shard; return its reader."""
        raise NotImplementedError

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_open": {}}


class RecordFiles(ShardFiles):
    """Variable-length records in array_record files.

    `ArrayRecordReader` is used directly, because `ArrayRecordDataSource` starts a
    thread per shard of a batch: with 64 shards, reading a record of 30 KB takes three
    times the CPU time (benchmarks/packed.py).
    """

    def __getitem__(self, indices: np.ndarray) -> list[bytes]:
        """Return the records with the given indices, in the order of `indices`.

        Raises:
          RuntimeError: A file is incomplete, or a checksum is wrong.
        """
        records = [b""] * len(indices)
        for reader, positions, places in self.by_shard(indices):
            for i, record in zip(positions, reader.read(places.tolist()), strict=False):
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
    """Raise the limit of open files for this process and its data workers.

    Raises:
      UserError: The system does not allow enough open files.
    """
    limit = raise_file_limit()
    if limit < num_files + SPARE:
        raise UserError(
            f"{name} has {num_files} files, but the limit of open files is {limit} "
            "(`ulimit -Hn`): raise the limit"
        )
