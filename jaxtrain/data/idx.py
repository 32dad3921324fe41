"""`idx:DIR`: the files of MNIST and of the sets that took over its format."""

import gzip
import math
import os
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from jaxtrain.config import DataConfig
from jaxtrain.data.array_files import (
    MAX_INFLATION,
    Damaged,
    Readable,
    allocate,
    as_set,
    check_shapes,
    fill,
    opened,
)
from jaxtrain.data.stores import Opened
from jaxtrain.errors import UserError

# How the names of the files of each split begin; as MNIST has them, "t10k" tests.
PREFIXES = {"train": "train", "test": "t10k"}
# Of files that hold bytes: the number of dimensions comes after it.
MAGIC = b"\0\0\x08"
NUM_DIMS = {"images": 3, "labels": 1}


def open_idx(name: str, config: DataConfig) -> Opened:
    """Open a folder with train-images-idx3-ubyte and its like, packed by gzip or not.

    Raises:
      UserError: a file is missing, or is not what its name tells.
    """
    source = config.source
    if not name:
        raise UserError(f"data.source = {source!r}: expected idx:DIR")
    folder = os.path.expanduser(name)
    paths = {
        split: {kind: _find(folder, prefix, kind) for kind in NUM_DIMS}
        for split, prefix in PREFIXES.items()
    }
    if not any(paths["test"].values()):
        del paths["test"]
    for split, of_split in paths.items():
        for kind, path in of_split.items():
            if path is None:
                raise UserError(
                    f"{source}: there is no {_name(PREFIXES[split], kind)}, nor the "
                    f"same with .gz, seen from {os.getcwd()}"
                )
    return _read_all(source, paths)


def _read_all(source: str, paths: dict[str, dict[str, Any]]) -> Opened:
    shapes = {}
    for split, of_split in paths.items():
        for kind, path in of_split.items():
            with _content(source, path) as (stream, size):
                shapes[split, kind] = _read_shape(stream, kind, size)
        images, labels = (shapes[split, kind][0] for kind in NUM_DIMS)
        if images != labels:
            raise UserError(
                f"{source}: the {split} split has {images} images and {labels} labels"
            )
    image_shapes = {split: shapes[split, "images"] for split in paths}
    check_shapes(source, image_shapes)
    images, labels = allocate(image_shapes), []
    for split, of_split in paths.items():
        labels.append(np.empty(len(images[split]), np.uint8))
        arrays = {"images": images[split], "labels": labels[-1]}
        for kind, path in of_split.items():
            with _content(source, path) as (stream, _):
                stream.read(_header_size(kind))
                fill(arrays[kind], stream)
                if stream.read(1):
                    raise Damaged("it goes on after its last example")
    return as_set(source, images, np.concatenate(labels))


def _header_size(kind: str) -> int:
    return len(MAGIC) + 1 + 4 * NUM_DIMS[kind]


def _name(prefix: str, kind: str) -> str:
    return f"{prefix}-{kind}-idx{NUM_DIMS[kind]}-ubyte"


def _find(folder: str, prefix: str, kind: str) -> str | None:
    """Return where a file lies; some pack, and some write a dot before idx."""
    name = _name(prefix, kind)
    names = [name, f"{name}.gz", name.replace("-idx", ".idx")]
    paths = [os.path.join(folder, name) for name in names]
    return next((path for path in paths if os.path.lexists(path)), None)


@contextmanager
def _content(source: str, path: str) -> Iterator[tuple[Readable, int]]:
    """Open a file; give what it holds, and the most bytes that it can hold."""
    with opened(source, path) as (file, size):
        if not path.endswith(".gz"):
            yield file, size
            return
        try:
            with gzip.GzipFile(fileobj=file) as unpacked:
                yield unpacked, MAX_INFLATION * size
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise Damaged(f"it cannot be unpacked ({error})") from None


def _read_shape(stream: Readable, kind: str, size: int) -> tuple[int, ...]:
    """Return the shape that the header of a file tells.

    Raises:
      Damaged: it cannot be.
    """
    num_dims, header = NUM_DIMS[kind], stream.read(_header_size(kind))
    expected = MAGIC + bytes([num_dims])
    if header[:4] != expected:
        raise Damaged(
            f"it begins with {header[:4].hex() or 'nothing'}, expected "
            f"{expected.hex()}, {kind} of 8 bits"
        )
    if len(header) < _header_size(kind):
        raise Damaged("its header is cut off")
    shape = struct.unpack(f">{num_dims}I", header[4:])
    if math.prod(shape) > size:
        raise Damaged(f"it tells of {math.prod(shape):,} bytes, which it cannot hold")
    return shape
