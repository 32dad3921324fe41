"""Prefetching of batches by threads or by data workers, which are processes.

Batches are yielded in the order of their positions. The number of prefetched batches is
limited, so readers may wait for the consumer. Closing the generator ends its readers.
Grain starts the data workers. Workers may die, and must not outlive the run.
"""

import collections
import errno
import functools
import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing.shared_memory import SharedMemory
from types import FrameType
from typing import Any

from jaxtrain import own
from jaxtrain.errors import StartAgainError, UserError
from jaxtrain.processes import signals
from jaxtrain.system_errors import raise_file_limit

# Number of reader threads, without workers, if images are decoded or resized: decoding
# and resizing mostly release the GIL. If examples are only copied, 1 thread is faster.
READ_THREADS = 4
# Number of batches that threads prefetch.
READ_AHEAD = 8
# Number of batches in a worker's prefetch buffer; grain's internal buffers add 4
# batches. Workers are single-threaded: N workers use N cores.
WORKER_AHEAD = 2
# By default, splits with fewer examples use no workers: an epoch may be shorter than
# the startup of the workers (a few seconds).
WORKERS_MIN_EXAMPLES = 20_000
# Directory of the workers' shared memory and semaphores.
SHARED_MEMORY = "/dev/shm"
# Maximum default number of workers; higher numbers were not measured.
MAX_WORKERS = 16
# Maximum number of restarts of the workers after a worker died.
MAX_RESTARTS = 3
# If a worker dies, grain raises a RuntimeError whose message starts with this text.
_DIED = "Worker process was terminated unexpectedly"

# Numbers of file descriptors to reserve: for the process, and per data worker for both
# streams (training and evaluation). Measured: 8 per stream and worker, plus descriptors
# of batches in shared memory.
OPEN_FILES, OPEN_FILES_OF_WORKER = 64, 24
# Exit code of a worker that wrote to shared memory on a full file system.
_NO_ROOM = f"exit code {-signal.SIGBUS}"

Read = Callable[[int], Any]

_log = logging.getLogger(__name__)


def choose_workers(has_files: bool, num_examples: int) -> int:
    """Return the default number of data workers of a stream.

    Args:
      has_files: Whether the images are files, and must be decoded.
      num_examples: Number of examples of the split.
    """
    cores = len(os.sched_getaffinity(0))
    if not has_files or num_examples < WORKERS_MIN_EXAMPLES or cores <= READ_THREADS:
        return 0
    # One core is left to the trainer, which dispatches the steps.
    return min(cores - 1, MAX_WORKERS)


def by_threads(
    read: Read, positions: range, num_threads: int, num_ahead: int = READ_AHEAD
) -> Generator[Any, None, None]:
    """Yield `read(position)` for each position, in order, prefetched by threads.

    Args:
      read: Function that reads the batch at a position; called by several threads.
      positions: Positions of the batches.
      num_threads: Number of reader threads.
      num_ahead: Maximum number of prefetched batches.
    """
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
    """Yield `read(position)` for each position, prefetched by worker processes.

    Dead workers are restarted. No batch is lost or repeated, because a batch is a
    function of its position.

    Args:
      read: Picklable function that reads the batch at a position.
      start: Position of the first batch.
      stop: End of the positions, exclusive.
      num_workers: Number of worker processes.

    Raises:
      UserError: The limit on open files or the shared memory is too small.
      StartAgainError: A worker died again after MAX_RESTARTS restarts.
    """
    _check_open_files(num_workers)
    # The import takes 0.1 s of CPU time, so it is lazy, also in `with_workers`.
    import grain

    options = grain.ReadOptions(num_threads=1, prefetch_buffer_size=WORKER_AHEAD)
    for num_restarts in range(MAX_RESTARTS + 1):
        positions = grain.MapDataset.range(start, stop)
        positions = positions.map(functools.partial(_read_in_worker, read))
        batches = iter(with_workers(positions.to_iter_dataset(options), num_workers))
        try:
            for batch in batches:
                start += 1
                yield batch
            return
        except OSError as error:
            # Errors of sem_open, ftruncate and mmap (shared memory) have no filename.
            if error.filename is not None:
                raise
            raise _no_shared_memory(num_workers, error.strerror) from None
        except RuntimeError as error:
            if _DIED not in str(error):
                raise
            if _NO_ROOM in str(error):
                reason = os.strerror(errno.ENOSPC)
                raise _no_shared_memory(num_workers, reason) from None
            reason = str(error).partition(". ")[0].removeprefix(_DIED)
            message = f"a data worker died{reason}"
            if num_restarts == MAX_RESTARTS:
                raise StartAgainError(
                    f"{message} after {num_restarts} restarts, possibly out of memory: "
                    "set a smaller data.workers. The same command resumes from the "
                    "last checkpoint"
                ) from None
            _log.warning("warning: %s; restarting the workers", message)
        finally:
            batches.close()


def _read_in_worker(read: Read, position: int) -> Any:
    """Call `read` in a worker; convert `sys.exit` in custom code to a UserError.

    If the worker exited, the trainer would hang.
    """
    with own.no_exit():
        return read(position)


def _check_open_files(num_workers: int) -> None:
    limit = raise_file_limit()
    needed = OPEN_FILES + OPEN_FILES_OF_WORKER * num_workers
    if limit < needed:
        raise UserError(
            f"data.workers = {num_workers} needs up to {needed:,} open files, but the "
            f"limit is {limit:,}: raise the limit (ulimit -n 4096), or set a smaller "
            "data.workers (0 reads with threads)"
        )


def _no_shared_memory(num_workers: int, reason: str | None) -> UserError:
    return UserError(
        f"data.workers = {num_workers}: shared memory in {SHARED_MEMORY} cannot be "
        f"used ({reason}): increase the shared memory (docker run --shm-size 8g), or "
        "set data.workers = 0"
    )


def with_workers(dataset: Any, num_workers: int) -> Any:
    """Return a grain dataset that is prefetched by worker processes, in order."""
    import grain
    from absl import flags
    from grain.multiprocessing import SharedMemoryArray

    # Grain reads absl flags when it starts workers, and raises if they are not parsed.
    flags.FLAGS.mark_as_parsed()
    # Grain closes shared memory in a thread. An array that is garbage-collected at the
    # same time is closed twice, and the second close may hit a reused descriptor, such
    # as the file descriptor of a checkpoint being written.
    SharedMemoryArray.enable_async_del = _close_at_once
    options = grain.MultiprocessingOptions(num_workers=num_workers)
    return dataset.mp_prefetch(options, worker_init_fn=_init_worker)


def _close_at_once(num_threads: int = 1, max_outstanding_requests: int = 50) -> None:
    """No-op in place of Grain's `enable_async_del`, so that deletion is synchronous."""


def _init_worker(worker: int, num_workers: int) -> None:
    signals.ignore()
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Exit when the trainer process has ended, even if it was killed.

    Python's resource tracker then removes the remaining shared-memory segments.
    """
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    # The resource tracker does not know a segment that is being created, so the segment
    # would leak.
    while any(map(_makes_segment, sys._current_frames().values())):
        time.sleep(0.001)
    os._exit(1)


def _makes_segment(frame: FrameType | None) -> bool:
    """Whether the thread with this stack frame is creating a shared-memory segment."""
    while frame is not None and frame.f_code is not SharedMemory.__init__.__code__:
        frame = frame.f_back
    return frame is not None
