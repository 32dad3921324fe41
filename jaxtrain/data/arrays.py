"""`arrays:FILE.npz`: images and labels saved by NumPy.

The file is read into memory. A memory-mapped file could be larger than memory, but
SIGBUS would kill the process if the file were truncated during a run.
"""

import math
import os
import zipfile
import zlib
from functools import partial

import numpy as np

from jaxtrain.config import DataConfig
from jaxtrain.data.array_files import MAX_INFLATION, StoredArray, opened, read_set
from jaxtrain.data.image_files import listed, shown
from jaxtrain.data.stores import Opened
from jaxtrain.data.target_images import kind_by_dims

# Split -> suffix in the names of its two arrays, `image` + suffix and `label` + suffix.
SUFFIXES = {"train": "", "validation": "_validation", "test": "_test"}
PACKED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
EXPECTED = (
    "image, uint8 (N, H, W) or (N, H, W, C), and label, integers (N,) or (N, 1), "
    "one-hot (N, classes), numbers (N, columns) or masks (N, H, W), and optionally "
    "image_test, label_test, image_validation and label_validation"
)
KINDS = ("image", "label")
READ_HEADER = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def open_arrays(name: str, config: DataConfig) -> Opened:
    """Read a file that `np.savez` saved with arrays of images and labels."""
    with opened(config.source, os.path.expanduser(name)) as file:
        try:
            with zipfile.ZipFile(file) as packed:
                return _read_all(config, packed)
        # zipfile raises RuntimeError for an encrypted file.
        except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
            raise ValueError(f"not an .npz file, or damaged ({error})") from None


def _read_all(config: DataConfig, packed: zipfile.ZipFile) -> Opened:
    arrays = {name: _describe(packed, info) for name, info in _infos(packed).items()}
    pairs = {}
    for split, suffix in SUFFIXES.items():
        if "image" + suffix in arrays:
            pairs[split] = arrays["image" + suffix], arrays["label" + suffix]
            _check_pair(*pairs[split], named=bool(config.targets))
    return read_set(config.source, pairs, config.targets)


def _infos(packed: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    infos: dict[str, zipfile.ZipInfo] = {}
    for info in packed.infolist():
        if infos.setdefault(info.filename.removesuffix(".npy"), info) is not info:
            raise ValueError(f"the file holds {shown(info.filename)} twice")
    pairs = [[kind + suffix for kind in KINDS] for suffix in SUFFIXES.values()]
    wanted = [
        pair for pair in pairs if pair == [*KINDS] or not infos.keys().isdisjoint(pair)
    ]
    missing = [name for pair in wanted for name in pair if name not in infos]
    unknown = [name for name in infos if not any(name in pair for pair in pairs)]
    if missing or unknown:
        wrong = f"no {listed(missing)}" if missing else f"also {listed(unknown)}"
        raise ValueError(f"expected the arrays {EXPECTED}; found {wrong}")
    return infos


def _describe(packed: zipfile.ZipFile, info: zipfile.ZipInfo) -> StoredArray:
    """Parse the header of an array, without reading its data."""
    name = shown(info.filename)
    if info.compress_type not in PACKED:
        raise ValueError(
            f"{name} has an unsupported compression: save the arrays with np.savez or "
            "np.savez_compressed"
        )
    with packed.open(info) as stream:
        try:
            version = np.lib.format.read_magic(stream)
            shape, by_columns, dtype = READ_HEADER[version](stream)
            if any(type(size) is not int or size < 0 for size in shape):
                raise ValueError(f"the shape is {shape}")
        except Exception as error:  # Untrusted headers can raise any error.
            reason = " ".join(str(error).split())[:200]
            raise ValueError(
                f"the header of {name} cannot be read ({reason})"
            ) from None
        start = stream.tell()
    if dtype.hasobject:
        raise ValueError(
            f"{name} contains Python objects (a pickle), which could run any code when "
            "loaded: save a numeric array, not a list of arrays of different shapes"
        )
    if by_columns and len(shape) > 1:
        raise ValueError(
            f"{name} is in Fortran order: save np.ascontiguousarray(array)"
        )
    size = start + math.prod(shape) * dtype.itemsize
    if size != info.file_size or size > MAX_INFLATION * info.compress_size:
        raise ValueError(
            f"{name} declares {size:,} bytes, but has {info.file_size:,} uncompressed "
            f"and {info.compress_size:,} compressed"
        )
    return StoredArray(name, shape, dtype, start, partial(packed.open, info))


def _check_pair(image: StoredArray, label: StoredArray, *, named: bool) -> None:
    """Raise ValueError if images or labels are invalid, or differ in number.

    Args:
      image: Array of images.
      label: Array of labels.
      named: Whether `data.targets` names columns, so that labels are numeric targets.
    """
    if image.dtype != np.uint8:
        raise ValueError(
            f"{image.name} has the dtype {image.dtype}: expected uint8, with pixels "
            "from 0 to 255"
        )
    may_be_mask = label.dtype.kind in "iu" and label.shape == image.shape[:3]
    if may_be_mask and kind_by_dims(len(label.shape)) is not None and not named:
        return
    columns = named or len(label.shape) == 2
    # Class labels with missing values (NaN) are floats.
    if label.dtype.kind not in ("biuf" if columns else "iuf"):
        expected = "numbers" if columns else "integers, or columns (N, C) of numbers"
        raise ValueError(f"{label.name} is {label.dtype}, expected {expected}")
    is_table = len(label.shape) in (1, 2) and 0 not in label.shape[1:]
    if label.shape[:1] != image.shape[:1] or not is_table:
        raise ValueError(
            f"{image.name} has the shape {image.shape} and {label.name} {label.shape}: "
            "expected one label, one row of numbers, or a mask of the same height and "
            "width for each image"
        )
