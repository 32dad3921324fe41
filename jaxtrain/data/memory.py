"""Reuse of batch memory, and packing of a batch's crop windows into one array.

Reuse is faster than new allocations, which the OS clears page by page.
"""

import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from jaxtrain.data.batch import BOX

# Maximum number of free buffers. In a stream, each new batch reuses the memory of a
# consumed batch.
MAX_READY = 2
_ready: deque[np.ndarray] = deque(maxlen=MAX_READY)


def empty(shape: Sequence[int]) -> np.ndarray:
    """Return an uninitialized uint8 array, possibly in reused memory.

    Memory is reused only after the array, its views and its zero-copy aliases (as from
    `jax.device_put` on CPU) are deleted.
    """
    size = int(np.prod(shape))
    memory = _take(size)
    # NumPy sets the attribute `base` of each view to this array, because this array is
    # not a view of an array. Thus, this array is finalized after the last view.
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


def flatten(batch: dict[str, Any]) -> dict[str, Any]:
    """Concatenate the crop windows of a batch into one array, uint8 (bytes,).

    Most of a canvas is empty. Flat arrays save shared memory, which the OS clears and
    maps page by page.
    """
    boxes, canvases = batch[BOX], batch["image"]
    channels = canvases.shape[-1]
    num_pixels = np.ceil(boxes[:, 2:]).astype(int).prod(axis=1).sum()
    # The buffer has the size of all canvases, so that it can be reused for any batch.
    # Memory pages after the windows are never touched.
    flat = empty((canvases.size,))[: num_pixels * channels]
    for part, image in zip(_parts(flat, boxes, channels), canvases, strict=True):
        height, width, _ = part.shape
        part[:] = image[:height, :width]
    return {**batch, "image": flat}


def unflatten(batch: dict[str, Any], shape: tuple[int, int, int]) -> dict[str, Any]:
    """Undo `flatten`: unpack the windows onto canvases of `shape`, (H, W, C)."""
    flat, boxes = batch["image"], batch[BOX]
    canvases = empty((len(boxes), *shape))
    for part, image in zip(_parts(flat, boxes, shape[-1]), canvases, strict=True):
        height, width, _ = part.shape
        image[:height, :width] = part
    return {**batch, "image": canvases}


def _parts(flat: np.ndarray, boxes: np.ndarray, channels: int) -> Iterator[np.ndarray]:
    """Yield a view (h, w, channels) of each window in a flat array."""
    start = 0
    for width, height in np.ceil(boxes[:, 2:]).astype(int).tolist():
        stop = start + height * width * channels
        yield flat[start:stop].reshape(height, width, channels)
        start = stop
