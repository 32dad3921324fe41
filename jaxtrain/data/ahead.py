"""Read ahead of the steps: by threads of this process, or by data workers.

The order is that of the positions either way, and so much is read ahead and no more:
who takes no batches holds the reading up, and who closes the stream ends it.
"""

import collections
import contextlib
import os
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import grain

from jaxtrain.data.workers import go_on, with_workers

# Threads of a process without workers, where images are decoded or resized; they do so
# in C and hold each other up little. Where rows are only copied, more than one do.
READ_THREADS = 4
# Batches that they are ahead.
READ_AHEAD = 8
# A worker has one thread, so that `data.workers` is the number of cores in use. So
# many batches wait in it; with those that grain has on their way it is 6 ahead.
WORKER_AHEAD = 2
# Workers pay where there are more cores than the threads of one process can use, and
# a pass takes longer than their start, some seconds.
WORKERS_MIN_EXAMPLES = 20_000
# More of them were not tried.
MAX_WORKERS = 16

Read = Callable[[int], Any]


def choose_workers(has_files: bool, num_examples: int) -> int:
    """Return the number of data workers of a stream if the config leaves it open.

    Args:
      has_files: the images are files, to be decoded.
      num_examples: of a pass.
    """
    cores = len(os.sched_getaffinity(0))
    if not has_files or num_examples < WORKERS_MIN_EXAMPLES or cores <= READ_THREADS:
        return 0
    # One is left to the trainer, which starts the steps.
    return min(cores - 1, MAX_WORKERS)


def by_threads(
    read: Read, positions: range, num_threads: int, num_ahead: int = READ_AHEAD
) -> Generator[Any, None, None]:
    """Yield what is read at the positions, in order; so many are read ahead."""
    waiting: collections.deque[Future[Any]] = collections.deque()
    pool = ThreadPoolExecutor(num_threads, "read")
    try:
        for position in positions:
            waiting.append(pool.submit(read, position))
            if len(waiting) > num_ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def by_workers(
    read: Read, start: int, stop: int, num_workers: int
) -> Generator[Any, None, None]:
    """Yield the same, read by processes; one that dies is replaced."""

    def stream(start: int) -> Any:
        positions = grain.MapDataset.range(start, stop).map(read)
        options = grain.ReadOptions(num_threads=1, prefetch_buffer_size=WORKER_AHEAD)
        return iter(with_workers(positions.to_iter_dataset(options), num_workers))

    with contextlib.closing(go_on(stream, start)) as batches:
        yield from batches
