"""Data workers: processes of grain's that may die, and must not outlive the run."""

import logging
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable, Generator
from multiprocessing.shared_memory import SharedMemory
from types import FrameType
from typing import Any

from absl import flags
from grain import MultiprocessingOptions
from grain.multiprocessing import SharedMemoryArray

from jaxtrain.errors import StartAgainError
from jaxtrain.processes import signals

# Times that a stream is started anew after a worker died.
MAX_RESTARTS = 3
# How grain tells of a dead worker, within about a second.
_DIED = "Worker process was terminated unexpectedly"

_log = logging.getLogger(__name__)


def with_workers(dataset: Any, num_workers: int) -> Any:
    """Return a grain dataset that processes read ahead, in turn, in the same order."""
    # Grain reads absl flags when it starts workers, and raises if nobody parsed them.
    flags.FLAGS.mark_as_parsed()
    # Grain would close shared memory in a thread. An array that the garbage collector
    # finds is closed by both at once, and the second to come may close the descriptor
    # of another file, such as one of a checkpoint that is being written.
    SharedMemoryArray.enable_async_del = _close_at_once
    return dataset.mp_prefetch(
        MultiprocessingOptions(num_workers=num_workers), worker_init_fn=_start
    )


def go_on(stream: Callable[[int], Any], start: int) -> Generator[Any, None, None]:
    """Yield from `stream(start)`; if a worker dies, from a new one at the next place.

    No element is lost or doubled, as they depend on their place alone.

    Args:
      stream: makes an iterator that begins at a place; it has a `close`.
      start: the first place.

    Raises:
      StartAgainError: a worker died once more than MAX_RESTARTS.
    """
    for num_restarts in range(MAX_RESTARTS + 1):
        iterator = stream(start)
        try:
            for element in iterator:
                start += 1
                yield element
            return
        except RuntimeError as error:
            if _DIED not in str(error):
                raise
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
            iterator.close()


def _close_at_once(num_threads: int = 1, max_outstanding_requests: int = 50) -> None:
    """Leave arrays in shared memory to be closed where they are collected."""


def _start(worker: int, num_workers: int) -> None:
    """Begin a worker."""
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
