"""Data sets in array files (.npz, IDX), which are read into memory.

A file whose header declares more data than the file can contain is rejected.
"""

import hashlib
import io
import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple

import numpy as np

from jaxtrain.data import classes, columns, target_images
from jaxtrain.data.image_files import shown
from jaxtrain.data.slices import number_examples
from jaxtrain.data.stores import ArrayStore, Opened
from jaxtrain.data.unlabelled import NO_LABEL
from jaxtrain.errors import UserError, counted
from jaxtrain.regular_file import open_regular

# Maximum size of a data set, as a fraction of the machine's memory.
MEMORY_PART = 0.5
# Maximum compression ratio of deflate, used by gzip and zip.
MAX_INFLATION = 1032
CHUNK_BYTES = 2**24
MAX_CHANNELS = 4


class StoredArray(NamedTuple):
    """An array in a file, described by its header; the data is not read yet.

    Attributes:
      name: Name of the array, or of the file, for messages.
      shape: Shape of the array.
      dtype: Dtype of the array.
      start: Offset of the data in the file, in bytes.
      open: Function that opens the file for reading.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    start: int
    open: Callable[[], AbstractContextManager[Any]]

    def fill(self, array: np.ndarray) -> None:
        """Read the data into `array`; raise ValueError if the sizes differ."""
        view = array.reshape(-1).view(np.uint8).data
        with self.open() as stream:
            stream.read(self.start)
            while view:
                data = stream.read(min(len(view), CHUNK_BYTES))
                if not data:
                    raise ValueError(
                        f"the last {len(view):,} bytes of the array are missing"
                    )
                view[: len(data)] = data
                view = view[len(data) :]
            # Reading to the end of a zip member verifies its checksum.
            if stream.read(1):
                raise ValueError("the array has data after the last example")


@contextmanager
def opened(source: str, path: str) -> Iterator[io.BufferedReader]:
    """Open a regular file; convert read errors to UserError.

    Raises:
      UserError: The file cannot be opened, or the `with` block raises OSError or
        ValueError.
    """
    try:
        with open_regular(path) as file:
            yield file
    except UserError:
        raise
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        name = "" if source.endswith(path) else f" {shown(path)}:"
        raise UserError(f"{source}:{name} {reason}") from None


def read_set(
    source: str,
    pairs: Mapping[str, tuple[StoredArray, StoredArray]],
    targets: tuple[str, ...] = (),
) -> Opened:
    """Read the arrays of a data set into memory.

    Args:
      source: Name of the set in messages.
      pairs: Images and labels by split (train, validation, test). Images are uint8,
        (N, H, W) or (N, H, W, C). Labels are class indices, integers (N,) or (N, 1);
        one-hot, (N, classes); numeric targets, (N, columns); or masks, integers
        (N, H, W).
      targets: Names of the columns of numeric targets. Defaults to their indices.

    Raises:
      UserError: The images differ in shape or exceed the memory, or the labels are
        invalid.
    """
    shapes = {split: image.shape for split, (image, _) in pairs.items()}
    _check_shapes(source, shapes)
    lengths = {split: [shape[0]] for split, shape in shapes.items()}
    _, splits = number_examples(source, lengths)
    (shape,) = {shape[1:] for shape in shapes.values()}
    pixels = np.empty((sum(map(sum, lengths.values())), *shape), np.uint8)
    labels, parts = [], []
    for split, (image, label) in pairs.items():
        start = int(splits[split][0][0])
        parts.append(pixels[start : start + image.shape[0]])
        image.fill(parts[-1])
        stored = np.empty(label.shape, label.dtype)
        label.fill(stored)
        if (kind := target_images.kind_by_dims(stored.ndim)) is not None:
            labels.append(kind.checked(label.name, stored))
        elif are_classes(stored) and not targets:
            stored = stored.reshape(-1)
            labels.append(stored if stored.dtype.kind == "f" else stored.astype(int))
            if len(low := stored[stored < NO_LABEL]):
                raise ValueError(
                    f"{label.name} contains {low.min()}: expected class indices of 0 "
                    "or more, or -1 for a missing label; for numeric targets, set "
                    "data.targets to names of the columns"
                )
        else:
            labels.append(stored.reshape(len(stored), -1))
    if not targets and all(map(_is_one_hot, labels)):
        labels = [label.argmax(axis=1) for label in labels]
    if len({array.shape[1:] for array in labels}) > 1:
        raise UserError(
            f"{source}: the labels of the splits differ in shape; save labels of one "
            "shape"
        )
    everything, origin = np.concatenate(labels), ()
    if everything.ndim == 2:
        everything, origin = columns.centred(everything)
    digest = hashlib.sha256(everything.tobytes())
    for split, part in zip(pairs, parts, strict=True):
        digest.update(f"{split} {part.shape}".encode())
        digest.update(part.data)
    pixels = pixels.reshape(*pixels.shape[:3], -1)
    if (kind := target_images.kind_by_dims(everything.ndim)) is not None:
        images = ArrayStore(pixels, np.zeros(len(pixels), np.int32), {})
        return kind.from_arrays(images, everything, digest.hexdigest()), splits
    if everything.ndim == 1:
        numbers, names = classes.number(everything)
        facts = classes.facts(source, splits, numbers, names, digest.hexdigest())
        return ArrayStore(pixels, numbers, facts), splits
    names = targets or tuple(map(str, range(everything.shape[1])))
    if len(names) != everything.shape[1]:
        raise UserError(
            f"data.targets = {targets} has {counted(len(targets), 'name')}, but the "
            f"array `label` of {source} has {counted(everything.shape[1], 'column')}; "
            "name each column"
        )
    facts = columns.facts(source, splits, names, digest.hexdigest(), origin)
    return ArrayStore(pixels, everything, facts), splits


def _check_shapes(source: str, shapes: dict[str, tuple[int, ...]]) -> None:
    for split, shape in shapes.items():
        start = f"{source}: the images of the {split} split have the shape {shape}"
        if len(shape) not in (3, 4) or 0 in shape:
            raise UserError(
                f"{start}: expected (N, H, W) or (N, H, W, C), with all sizes above 0"
            )
        if len(shape) == 4 and shape[3] > MAX_CHANNELS:
            raise UserError(
                f"{start}: expected (N, H, W, C) with at most {MAX_CHANNELS} channels"
            )
    if len({shape[1:] for shape in shapes.values()}) > 1:
        raise UserError(
            f"{source}: the images of the splits differ in shape: {shapes}; save "
            "images of one shape"
        )
    size = sum(map(math.prod, shapes.values()))
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if size > MEMORY_PART * memory:
        raise UserError(
            f"{source} contains {size:,} bytes of images, more than {MEMORY_PART:.0%} "
            f"of the {memory:,} bytes of memory: save image files instead, and set "
            "data.source to folder:DIR or csv:FILE"
        )


def are_classes(label: np.ndarray) -> bool:
    """Whether labels are class indices: shape (N,), or integers of shape (N, 1)."""
    return label.ndim == 1 or (label.shape[1:] == (1,) and label.dtype.kind in "biu")


def _is_one_hot(label: np.ndarray) -> bool:
    if label.ndim != 2 or label.shape[1] < 2:
        return False
    ones = label == 1
    return bool((ones | (label == 0)).all() and (ones.sum(axis=1) == 1).all())
