"""`arrays:FILE.npz`: images and labels as NumPy saves them.

The file is read whole. Mapped into memory it could be larger than that, but would end
the process (SIGBUS) if somebody cut it off meanwhile.
"""

import math
import os
import zipfile
import zlib
from typing import NamedTuple

import numpy as np

from jaxtrain.config import DataConfig
from jaxtrain.data.array_files import (
    MAX_INFLATION,
    Damaged,
    allocate,
    as_set,
    check_shapes,
    fill,
    opened,
)
from jaxtrain.data.image_files import listed, shown
from jaxtrain.data.stores import Opened
from jaxtrain.errors import UserError

# What is added to `image` and `label` for each split.
SUFFIXES = {"train": "", "validation": "_validation", "test": "_test"}
PACKED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
EXPECTED = (
    "image, uint8 (N, H, W) or (N, H, W, C), and label, integers (N,), and the same "
    "with _test and _validation"
)


KINDS = ("image", "label")
READ_HEADER = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


class Member(NamedTuple):
    """An array in the file, as its header tells; it starts after that."""

    name: str
    info: zipfile.ZipInfo
    shape: tuple[int, ...]
    dtype: np.dtype
    start: int


def open_arrays(name: str, config: DataConfig) -> Opened:
    """Open a file of `np.savez` with `image`, `label` and those of other splits.

    Raises:
      UserError: it is no such file, or holds other arrays.
    """
    if not name:
        raise UserError(f"data.source = {config.source!r}: expected arrays:FILE.npz")
    with opened(config.source, os.path.expanduser(name)) as (file, _):
        try:
            with zipfile.ZipFile(file) as packed:
                return _read_all(config.source, packed)
        # A file that wants a password is a RuntimeError.
        except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
            raise Damaged(f"it is no .npz file, or damaged ({error})") from None


def _read_all(source: str, packed: zipfile.ZipFile) -> Opened:
    members = {name: _header(packed, info) for name, info in _infos(packed).items()}
    splits = [
        split for split, suffix in SUFFIXES.items() if "image" + suffix in members
    ]
    for split in splits:
        _check_pair(*(members[kind + SUFFIXES[split]] for kind in KINDS))
    shapes = {split: members["image" + SUFFIXES[split]].shape for split in splits}
    check_shapes(source, shapes)
    images, labels = allocate(shapes), []
    for split in splits:
        _fill(images[split], packed, members["image" + SUFFIXES[split]])
        member = members["label" + SUFFIXES[split]]
        label = np.empty(member.shape, member.dtype)
        _fill(label, packed, member)
        labels.append(label.astype(np.int64))
        if labels[-1].min() < 0:
            raise Damaged(f"{member.name} holds {label.min()}: expected 0 or more")
    return as_set(source, images, np.concatenate(labels))


def _infos(packed: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """Return what the file holds, by name.

    Raises:
      Damaged: it is not what is expected.
    """
    infos: dict[str, zipfile.ZipInfo] = {}
    for info in packed.infolist():
        if infos.setdefault(info.filename.removesuffix(".npy"), info) is not info:
            raise Damaged(f"it holds {shown(info.filename)} twice")
    pairs = [[kind + suffix for kind in KINDS] for suffix in SUFFIXES.values()]
    wanted = [
        pair for pair in pairs if pair == [*KINDS] or not infos.keys().isdisjoint(pair)
    ]
    missing = [name for pair in wanted for name in pair if name not in infos]
    unknown = [name for name in infos if not any(name in pair for pair in pairs)]
    if missing or unknown:
        wrong = f"no {listed(missing)}" if missing else f"{listed(unknown)}, too"
        raise Damaged(f"expected the arrays {EXPECTED}; it holds {wrong}")
    return infos


def _header(packed: zipfile.ZipFile, info: zipfile.ZipInfo) -> Member:
    """Read what an array is; none of its bytes is read.

    Raises:
      Damaged: it cannot be read, or is larger than what is there.
    """
    name = shown(info.filename)
    if info.compress_type not in PACKED:
        raise Damaged(f"{name} is packed in another way than NumPy does")
    with packed.open(info) as stream:
        try:
            version = np.lib.format.read_magic(stream)
            shape, by_columns, dtype = READ_HEADER[version](stream)
            if any(type(size) is not int or size < 0 for size in shape):
                raise ValueError(f"its shape is {shape}")
        except Exception as error:  # A header is Python source, and may be any.
            reason = " ".join(str(error).split())[:200]
            raise Damaged(f"{name}: its header cannot be read ({reason})") from None
        start = stream.tell()
    if dtype.hasobject:
        raise Damaged(
            f"{name} holds Python objects, a pickle, which could run any code when it "
            "is read: save numbers, and not a list of arrays that differ in shape"
        )
    if by_columns and len(shape) > 1:
        raise Damaged(f"{name} lies by columns: save np.ascontiguousarray of it")
    size = start + math.prod(shape) * dtype.itemsize
    if size != info.file_size or size > MAX_INFLATION * info.compress_size:
        raise Damaged(
            f"{name} tells of {size:,} bytes, and {info.file_size:,} unpacked are "
            f"there, {info.compress_size:,} packed"
        )
    return Member(name, info, shape, dtype, start)


def _check_pair(image: Member, label: Member) -> None:
    """Raise Damaged unless these are images and a label for each."""
    if image.dtype != np.uint8:
        raise Damaged(
            f"{image.name} is of {image.dtype}, expected uint8: pixels from 0 to 255"
        )
    if label.dtype.kind not in "iu":
        raise Damaged(f"{label.name} is of {label.dtype}, expected integers")
    if label.shape != image.shape[:1]:
        raise Damaged(
            f"{image.name} has the shape {image.shape} and {label.name} {label.shape}: "
            "expected one label for each image"
        )


def _fill(array: np.ndarray, packed: zipfile.ZipFile, member: Member) -> None:
    with packed.open(member.info) as stream:
        stream.read(member.start)
        fill(array, stream)
        stream.read(1)  # At the end the checksum is looked at.
