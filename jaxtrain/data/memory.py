"""Memory of large arrays, used again once nobody can see the array any more.

New memory takes longer: the system clears it page by page.
"""

import weakref
from collections import deque
from collections.abc import Sequence

import numpy as np

# Pieces that lie ready for new arrays, at most; in a stream each new batch takes the
# memory of one that a step has used.
MAX_READY = 2
_ready: deque[np.ndarray] = deque(maxlen=MAX_READY)


def empty(shape: Sequence[int]) -> np.ndarray:
    """Return an array of bytes, uint8 of this shape, that holds anything.

    Its memory is given away again only when the array, all views of it and all that
    others have made of it without a copy, such as `jax.device_put` on CPU, are gone.
    """
    size = int(np.prod(shape))
    memory = _take(size)
    # All views have this array as their base, as its own base is no array.
    whole = np.frombuffer(memory.data, np.uint8)
    weakref.finalize(whole, _ready.append, memory).atexit = False
    return whole.reshape(shape)


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
