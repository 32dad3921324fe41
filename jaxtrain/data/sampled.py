"""Evenly spaced samples of a store's images, to inspect them before a run."""

from collections.abc import Iterator

import numpy as np

from jaxtrain.data import files
from jaxtrain.data.files import StoredFile, UnreadableError
from jaxtrain.data.stores import Store

# Maximum number of image headers to sample, and number of images to read at a time.
NUM_HEADERS = 1000
READ = 64


def evenly(examples: np.ndarray, most: int) -> np.ndarray:
    """Return at most `most` evenly spaced elements of `examples`, (N,)."""
    number = min(len(examples), most)
    return examples[np.arange(number) * len(examples) // max(number, 1)]


def stored_images(
    store: Store, examples: np.ndarray
) -> Iterator[tuple[int, np.ndarray | StoredFile]]:
    """Yield (index, stored image) for each index in `examples`, (N,)."""
    for start in range(0, len(examples), READ):
        part = examples[start : start + READ]
        yield from zip(part.tolist(), store.read(part)[0], strict=True)


def common_size(
    store: Store, examples: np.ndarray, max_pixels: int
) -> tuple[int, int] | None:
    """Return the common height and width of a sample of image files, or None.

    The result is None if sizes differ, no file is readable, or images are not files.
    """
    common: tuple[int, int] | None = None
    for _, image in stored_images(store, evenly(examples, NUM_HEADERS)):
        if not isinstance(image, StoredFile):
            return None
        try:
            file = files.open_file(image.data, max_pixels)
        except UnreadableError:
            continue
        size = file.height, file.width
        if common not in (None, size):
            return None
        common = size
    return common
