"""`idx:DIR`: images and labels in MNIST's file format (IDX)."""

import gzip
import io
import math
import os
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np

from jaxtrain.config import DataConfig
from jaxtrain.data.array_files import MAX_INFLATION, StoredArray, opened, read_set
from jaxtrain.data.image_files import in_any_case
from jaxtrain.data.stores import Opened
from jaxtrain.errors import UserError

# Split -> prefix of its file names; MNIST's test files start with "t10k".
PREFIXES = {"train": "train", "test": "t10k"}
# First three bytes of an IDX file of uint8; the fourth is the number of dimensions.
MAGIC = b"\0\0\x08"
NUM_DIMS = {"images": 3, "labels": 1}


def open_idx(name: str, config: DataConfig) -> Opened:
    """Open a directory of MNIST-format (IDX) files, optionally gzipped.

    Raises:
      UserError: A file is missing or malformed.
    """
    source, folder, pairs = config.source, os.path.expanduser(name), {}
    for split, prefix in PREFIXES.items():
        paths = {kind: _find(folder, prefix, kind) for kind in NUM_DIMS}
        if split == "test" and not any(paths.values()):
            continue
        arrays = {}
        for kind, path in paths.items():
            if path is None:
                raise UserError(
                    f"{source}: {_name(prefix, kind)} and {_name(prefix, kind)}.gz do "
                    f"not exist (relative to {os.getcwd()}): correct the path, or add "
                    "the file"
                )
            arrays[kind] = _describe(source, path, kind)
        images, labels = (array.shape[0] for array in arrays.values())
        if images != labels:
            raise UserError(
                f"{source}: the {split} split has {images} images, but {labels} "
                "labels: use matching files"
            )
        pairs[split] = arrays["images"], arrays["labels"]
    return read_set(source, pairs)


def _name(prefix: str, kind: str) -> str:
    return f"{prefix}-{kind}-idx{NUM_DIMS[kind]}-ubyte"


def _find(folder: str, prefix: str, kind: str) -> str | None:
    """Return the path of an IDX file, or None if absent.

    The name may end in .gz, or have `.idx` in place of `-idx`.
    """
    name = _name(prefix, kind)
    names = [name, f"{name}.gz", name.replace("-idx", ".idx")]
    paths = (in_any_case(folder, name) for name in names)
    return next((path for path in paths if path is not None), None)


@contextmanager
def _content(source: str, path: str) -> Iterator[io.BufferedIOBase]:
    with opened(source, path) as file:
        if not path.lower().endswith(".gz"):
            yield file
            return
        try:
            with gzip.GzipFile(fileobj=file) as unpacked:
                yield unpacked
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise ValueError(f"the file cannot be decompressed ({error})") from None


def _describe(source: str, path: str, kind: str) -> StoredArray:
    num_dims = NUM_DIMS[kind]
    num_bytes, expected = 4 + 4 * num_dims, MAGIC + bytes([num_dims])
    with _content(source, path) as stream:
        header = stream.read(num_bytes)
        if header[:4] != expected:
            raise ValueError(
                f"the magic number is {header[:4].hex() or 'missing'}, expected "
                f"{expected.hex()} for {kind} in uint8"
            )
        if len(header) < num_bytes:
            raise ValueError("the header is truncated")
        shape = struct.unpack(f">{num_dims}I", header[4:])
        total = math.prod(shape)
        inflation = MAX_INFLATION if path.lower().endswith(".gz") else 1
        if total > inflation * os.fstat(stream.fileno()).st_size:
            raise ValueError(
                f"the header declares {total:,} bytes, more than the file can contain"
            )
    read = partial(_content, source, path)
    return StoredArray(path, shape, np.dtype(np.uint8), num_bytes, read)
