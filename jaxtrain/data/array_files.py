"""Files that hold arrays: no more memory is taken than they can fill, and there is."""

import hashlib
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, Protocol

import numpy as np

from jaxtrain.data import classes
from jaxtrain.data.classes import SPLITS
from jaxtrain.data.image_files import shown
from jaxtrain.data.stores import ArrayStore, Opened
from jaxtrain.errors import UserError
from jaxtrain.regular_file import open_regular

# Part of the machine's memory that a set may take.
MEMORY_PART = 0.5
# The most bytes that deflate, which gzip and zip use, makes of one.
MAX_INFLATION = 1032
CHUNK_BYTES = 2**24
MAX_CHANNELS = 4


class Readable(Protocol):
    """What bytes are read from."""

    def read(self, size: int, /) -> bytes: ...


class Damaged(Exception):
    """Why a file does not hold the arrays that it should."""


@contextmanager
def opened(source: str, path: str) -> Iterator[tuple[BinaryIO, int]]:
    """Open a regular file, and give its size; what happens to it is told of its name.

    Raises:
      UserError: it cannot be opened, or is damaged.
    """
    try:
        with open_regular(path) as file:
            yield file, os.fstat(file.fileno()).st_size
    except UserError:
        raise
    except (Damaged, OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        name = "" if source.endswith(path) else f" {shown(path)}:"
        raise UserError(f"{source}:{name} {reason}") from None


def check_room(source: str, size: int) -> None:
    """Raise UserError if so many bytes would fill the memory."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if size > MEMORY_PART * memory:
        raise UserError(
            f"{source} holds {size:,} bytes of images, more than {MEMORY_PART:.0%} of "
            f"the {memory:,} of the memory, where they would lie: write image files "
            "and read them as folder: or csv:"
        )


def fill(array: np.ndarray, stream: Readable) -> None:
    """Fill an array with the bytes that follow.

    Raises:
      Damaged: there are less.
    """
    view = array.reshape(-1).view(np.uint8).data
    while view:
        data = stream.read(min(len(view), CHUNK_BYTES))
        if not data:
            raise Damaged(f"its last {len(view):,} bytes are missing")
        view[: len(data)] = data
        view = view[len(data) :]


def allocate(shapes: dict[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    """Return an array of bytes for each split, one after the other in memory."""
    (shape,) = {shape[1:] for shape in shapes.values()}
    whole = np.empty((sum(shape[0] for shape in shapes.values()), *shape), np.uint8)
    ends = np.cumsum([shape[0] for shape in shapes.values()])
    return dict(zip(shapes, np.split(whole, ends[:-1]), strict=True))


def check_shapes(source: str, shapes: dict[str, tuple[int, ...]]) -> None:
    """Check that there are images, of one size, and not more of them than fit.

    Args:
      source: as messages call the set.
      shapes: of the images of each split, (N, H, W) or (N, H, W, C).

    Raises:
      UserError: they are not.
    """
    for split, shape in shapes.items():
        if len(shape) not in (3, 4) or 0 in shape:
            raise UserError(
                f"{source}: the images of the {split} split have the shape {shape}: "
                "expected (N, H, W) or (N, H, W, C), and none of them 0"
            )
        if len(shape) == 4 and shape[3] > MAX_CHANNELS:
            raise UserError(
                f"{source}: the images of the {split} split have the shape {shape}: "
                f"expected (N, H, W, C), the channels last and at most {MAX_CHANNELS}"
            )
    if len({shape[1:] for shape in shapes.values()}) > 1:
        raise UserError(f"{source}: the images of its splits differ in shape: {shapes}")
    check_room(source, sum(map(math.prod, shapes.values())))


def as_set(source: str, images: dict[str, np.ndarray], label: np.ndarray) -> Opened:
    """Return a set of arrays.

    Args:
      source: as messages call it.
      images: of each split, as `allocate` returned them.
      label: of all of them, any numbers, (N,).

    Raises:
      UserError: there are no classes to learn.
    """
    numbers, class_names = classes.number(label)
    splits, start = {}, 0
    found = hashlib.sha256(label.astype(np.int64).tobytes())
    for split in dict.fromkeys(SPLITS.values()):
        if split in images:
            found.update(f"{split} {images[split].shape}".encode())
            found.update(images[split].data)
    for split, some in images.items():
        splits[split] = [np.arange(start, start + len(some))]
        start += len(some)
    classes.check(source, splits, numbers, class_names)
    whole = next(iter(images.values())).base
    assert whole is not None and len(whole) == start
    whole = whole.reshape(*whole.shape[:3], -1)
    facts = classes.facts(class_names, found.hexdigest())
    return ArrayStore(whole, numbers, facts), splits
