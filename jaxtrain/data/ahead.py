"""Read ahead of the steps: by threads of this process, or by data workers.

The order is that of the positions either way, and so much is read ahead and no more:
who takes no batches holds the reading up, and who closes the stream ends it. Data
workers are processes of grain's, which may die, and must not outlive the run.
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
# Shared memory of the workers and their semaphores.
SHARED_MEMORY = "/dev/shm"
# More of them were not tried.
MAX_WORKERS = 16
# Times that workers are started anew after one died.
MAX_RESTARTS = 3
# How grain tells of a dead worker, within about a second.
_DIED = "Worker process was terminated unexpectedly"

# Descriptors of a process before it starts workers, and for each worker of the training
# and the evaluation stream: 8 were counted for one stream, and more hold its batches.
OPEN_FILES, OPEN_FILES_OF_WORKER = 64, 24
# The exit code of a worker that wrote into shared memory for which there was no room.
_NO_ROOM = f"exit code {-signal.SIGBUS}"

Read = Callable[[int], Any]

_log = logging.getLogger(__name__)


def choose_workers(has_files: bool, num_examples: int) -> int:
    """Return the number of data workers of a stream if the config leaves it open.

    Args:
      has_files: whether the images are files, to be decoded.
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
    """Yield the same, read by processes; if one dies, all are started anew.

    No batch is lost or doubled, as they depend on their positions alone.

    Raises:
      UserError: the limit of open files, or shared memory, is too small for workers.
      StartAgainError: a worker died once more than MAX_RESTARTS.
    """
    _check_open_files(num_workers)
    import grain  # Also by `with_workers`: 0.1 s of CPU time, for runs with workers.

    options = grain.ReadOptions(num_threads=1, prefetch_buffer_size=WORKER_AHEAD)
    for num_restarts in range(MAX_RESTARTS + 1):
        positions = grain.MapDataset.range(start, stop)
        positions = positions.map(functools.partial(_read, read))
        batches = iter(with_workers(positions.to_iter_dataset(options), num_workers))
        try:
            for batch in batches:
                start += 1
                yield batch
            return
        except OSError as error:
            if error.filename is not None:  # Of the data.
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
                    f"{message}, the {num_restarts + 1}th time. Was the memory full? "
                    "Try a smaller data.workers. The same command goes on from the "
                    "last checkpoint"
                ) from None
            _log.warning("warning: %s; the workers are started anew", message)
        finally:
            batches.close()


def _read(read: Read, position: int) -> Any:
    """Read in a worker, which must not end by itself: the trainer would wait."""
    with own.no_exit():
        return read(position)


def _check_open_files(num_workers: int) -> None:
    limit = raise_file_limit()
    needed = OPEN_FILES + OPEN_FILES_OF_WORKER * num_workers
    if limit < needed:
        raise UserError(
            f"data.workers = {num_workers} takes up to {needed:,} open files, and the "
            f"limit is {limit:,}: raise it (ulimit -n 4096), or set a smaller "
            "data.workers (0: threads of the trainer read)"
        )


def _no_shared_memory(num_workers: int, reason: str | None) -> UserError:
    return UserError(
        f"data.workers = {num_workers} share memory in {SHARED_MEMORY}, which cannot "
        f"be used ({reason}): mount it with more room (docker run --shm-size 8g), or "
        "give --data.workers 0"
    )


def with_workers(dataset: Any, num_workers: int) -> Any:
    """Return a grain dataset that processes read ahead, in turn, in the same order."""
    import grain
    from absl import flags
    from grain.multiprocessing import SharedMemoryArray

    # Grain reads absl flags when it starts workers, and raises if nobody parsed them.
    flags.FLAGS.mark_as_parsed()
    # Grain would close shared memory in a thread. An array that the garbage collector
    # finds is closed by both at once, and the second to come may close the descriptor
    # of another file, such as one of a checkpoint that is being written.
    SharedMemoryArray.enable_async_del = _close_at_once
    options = grain.MultiprocessingOptions(num_workers=num_workers)
    return dataset.mp_prefetch(options, worker_init_fn=_start)


def _close_at_once(num_threads: int = 1, max_outstanding_requests: int = 50) -> None:
    """Leave arrays in shared memory to be closed where they are collected."""


def _start(worker: int, num_workers: int) -> None:
    signals.ignore()
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End when the trainer has ended, even if it was killed and could not say so.

    Python's tracker of shared memory, a process of its own, then removes what is left.
    """
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    # To end in the midst of making a segment would leave that: the tracker does not
    # know it yet.
    while any(map(_makes_segment, sys._current_frames().values())):
        time.sleep(0.001)
    os._exit(1)


def _makes_segment(frame: FrameType | None) -> bool:
    """Whether a thread is making a segment of shared memory."""
    while frame is not None and frame.f_code is not SharedMemory.__init__.__code__:
        frame = frame.f_back
    return frame is not None
