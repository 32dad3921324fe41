"""Reuse of the memory of large arrays.

Newly allocated memory is slower, because the kernel clears it page by page.
"""

import weakref
from collections import deque
from collections.abc import Sequence

import numpy as np

# Maximum number of free buffers. In a stream, each new batch reuses the memory of a
# consumed batch.
MAX_READY = 2
_ready: deque[np.ndarray] = deque(maxlen=MAX_READY)


def empty(shape: Sequence[int]) -> np.ndarray:
    """Return an uninitialized uint8 array, possibly in reused memory.

    Memory is reused only after an array, its views and its zero-copy aliases, such as
    from `jax.device_put` on CPU, are deleted.
    """
    size = int(np.prod(shape))
    memory = _take(size)
    # `base` is the base of all views, because it is not itself a view of an array.
    base = np.frombuffer(memory.data, np.uint8)
    weakref.finalize(base, _ready.append, memory).atexit = False
    return base.reshape(shape)


def _take(size: int) -> np.ndarray:
    for _ in range(MAX_READY):
        try:
            memory = _ready.popleft()
        except IndexError:
            break
        if memory.size == size:
            return memory
        _ready.append(memory)
    return np.empty(size, np.uint8)
