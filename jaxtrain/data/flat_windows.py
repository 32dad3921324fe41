"""Packing of crop windows (`canvas.py`) for the transfer from data workers."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from jaxtrain.data import memory
from jaxtrain.data.batch import BOX


def flatten(batch: dict[str, Any]) -> dict[str, Any]:
    """Concatenate the crop windows of a batch into one array, uint8 (bytes,).

    Most of a canvas is empty, so this saves shared memory, which the kernel clears and
    maps page by page.
    """
    boxes, canvases = batch[BOX], batch["image"]
    channels = canvases.shape[-1]
    num_pixels = np.ceil(boxes[:, 2:]).astype(int).prod(axis=1).sum()
    # The buffer has the size of all canvases, so that it can be reused for any batch.
    # Pages beyond the windows are never touched.
    flat = memory.empty((canvases.size,))[: num_pixels * channels]
    for part, image in zip(_parts(flat, boxes, channels), canvases, strict=True):
        height, width, _ = part.shape
        part[:] = image[:height, :width]
    return {**batch, "image": flat}


def unflatten(batch: dict[str, Any], shape: tuple[int, int, int]) -> dict[str, Any]:
    """Undo `flatten`: unpack the windows onto canvases of a shape (H, W, C)."""
    flat, boxes = batch["image"], batch[BOX]
    canvases = memory.empty((len(boxes), *shape))
    for part, image in zip(_parts(flat, boxes, shape[-1]), canvases, strict=True):
        height, width, _ = part.shape
        image[:height, :width] = part
    return {**batch, "image": canvases}


def _parts(flat: np.ndarray, boxes: np.ndarray, channels: int) -> Iterator[np.ndarray]:
    """Yield a view of each window in a flat array, (h, w, channels)."""
    start = 0
    for width, height in np.ceil(boxes[:, 2:]).astype(int).tolist():
        stop = start + height * width * channels
        yield flat[start:stop].reshape(height, width, channels)
        start = stop
