"""Files of `torch.save` (.pth, .pt, .bin) without PyTorch: tensors, and nothing else.

Both formats are read: the zip archive of PyTorch 1.6 and later, and the row of pickles
before it. The file is mapped into memory: an array is a view of it, and is read when it
is used. Formats: https://docs.pytorch.org/docs/stable/notes/serialization.html and
torch/serialization.py.
"""

import functools
import io
import math
import struct
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import ml_dtypes
import numpy as np

from jaxtrain.models.weights.pickled import Name, Pickle, PickleError, shown

# Of the pickle in a file, which names the tensors; their values lie beside it.
MAX_PICKLE_BYTES = 2**24
MAX_DIMS = 8
# The first pickle of the older format, the second, and what zip archives begin with.
MAGIC, VERSION, ZIP = 0x1950A86A20F9469CFC6C, 1001, b"PK\x03\x04"
# What the module raises of damaged archives.
DAMAGED_ZIP = (
    *(zipfile.BadZipFile, struct.error, OSError),
    *(NotImplementedError, EOFError, IndexError),
)
# Bytes of the header of a file in an archive, and where it has the lengths of its name
# and of what else there is before the content.
ZIP_HEADER, ZIP_LENGTHS = 30, 26
# Names under which a training script puts the weights beside other things.
CONTAINERS = ("state_dict", "model")
# What wrappers of a model put before all names.
PREFIXES = ("module.", "_orig_mod.")

DTYPES = {
    "DoubleStorage": np.dtype(np.float64),
    "FloatStorage": np.dtype(np.float32),
    "HalfStorage": np.dtype(np.float16),
    "BFloat16Storage": np.dtype(ml_dtypes.bfloat16),
    "LongStorage": np.dtype(np.int64),
    "IntStorage": np.dtype(np.int32),
    "ShortStorage": np.dtype(np.int16),
    "CharStorage": np.dtype(np.int8),
    "ByteStorage": np.dtype(np.uint8),
    "BoolStorage": np.dtype(np.bool_),
}


@dataclass(frozen=True)
class Storage:
    """Values in a row, which tensors share: name in the file, dtype and number."""

    key: str
    dtype: np.dtype[Any]
    size: int


@dataclass(frozen=True)
class Tensor:
    """An array in a storage; offset and strides count values."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def read(path: Path, view: memoryview) -> dict[str, np.ndarray]:
    """Return the arrays of a file, mapped as `view`, by their names.

    Raises:
      ValueError: the file is damaged, or holds something else than tensors.
    """
    read_format = _read_zip if view[:4] == ZIP else _read_legacy
    value, storages = read_format(path, view)
    return {n: _array(n, x, storages) for n, x in _state_dict(value).items()}


# Bytes of a storage, by its key.
Storages = Callable[[Storage], memoryview]


def _read_zip(path: Path, view: memoryview) -> tuple[Any, Storages]:
    try:
        with zipfile.ZipFile(path) as archive:
            found = {info.filename: info for info in archive.infolist()}
    except DAMAGED_ZIP as error:
        raise ValueError(f"its directory is damaged ({error})") from None
    pickles = [name for name in found if name.endswith("/data.pkl")]
    if len(pickles) != 1:
        raise ValueError(f"it has {len(pickles)} files data.pkl, expected 1")
    root = pickles[0].removesuffix("data.pkl")
    if sum(info.file_size for info in found.values()) > len(view):
        raise ValueError("the files in it overlap")
    order = found.get(f"{root}byteorder")
    if order is not None and _entry(view, order) != b"little":
        raise ValueError("its numbers are big-endian: save it again")

    @functools.cache  # As several tensors may share one, whose checksum takes long.
    def storage(asked: Storage) -> memoryview:
        info = found.get(f"{root}data/{asked.key}")
        if info is None:
            raise ValueError(f"there is no storage {shown(asked.key)}")
        return _entry(view, info)

    data = _entry(view, found[pickles[0]])
    if len(data) > MAX_PICKLE_BYTES:
        raise ValueError(f"its pickle has more than {MAX_PICKLE_BYTES:,} bytes")
    return _load(io.BytesIO(data), {}), storage


def _entry(view: memoryview, info: zipfile.ZipInfo) -> memoryview:
    """Return the bytes of a file in an archive, which must not be compressed."""
    if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1:
        raise ValueError(f"{shown(info.filename)} is compressed or encrypted")
    header = view[info.header_offset : info.header_offset + ZIP_HEADER]
    if len(header) < ZIP_HEADER or header[:4] != ZIP:
        raise ValueError(f"{shown(info.filename)} is not where its directory says")
    start = info.header_offset + ZIP_HEADER
    start += sum(struct.unpack_from("<HH", header, ZIP_LENGTHS))
    content = view[start : start + info.file_size]
    if len(content) != info.file_size:
        raise ValueError(f"{shown(info.filename)} ends in the middle")
    if zlib.crc32(content) != info.CRC:
        raise ValueError(f"{shown(info.filename)} is damaged: its checksum is another")
    return content


def _read_legacy(path: Path, view: memoryview) -> tuple[Any, Storages]:
    """Read four pickles, a list of keys, and of each its size and its values."""
    stream = io.BytesIO(view[:MAX_PICKLE_BYTES])
    for expected in (MAGIC, VERSION):
        try:
            head = Pickle(stream).load()
        except PickleError as error:
            raise ValueError(f"it is of another format ({error})") from None
        if head != expected:
            raise ValueError("it is of another format")
    about = Pickle(stream).load()
    if not isinstance(about, dict) or about.get("little_endian") is not True:
        raise ValueError("its numbers are big-endian: save it again")
    storages: dict[str, Storage] = {}
    value = _load(stream, storages)
    keys, end = Pickle(stream).load(), stream.tell()
    listed = isinstance(keys, list) and all(isinstance(key, str) for key in keys)
    if not listed or set(keys) != storages.keys():
        raise ValueError("its storages are others than its tensors have")
    places = {}
    for key in keys:
        asked = storages[key]
        if end + 8 > len(view) or struct.unpack_from("<q", view, end)[0] != asked.size:
            raise ValueError(f"storage {shown(key)} has another size than it says")
        start, end = end + 8, end + 8 + asked.size * asked.dtype.itemsize
        places[key] = view[start:end]
    return value, lambda asked: places[asked.key]


def _load(stream: BinaryIO, storages: dict[str, Storage]) -> Any:
    """Return the value of the pickle of tensors; `storages` gets those it names."""

    def outside(reference: Any) -> Storage:
        # ('storage', class, key, device, size), and before the zip format a sixth:
        # None, or which part of another storage it is.
        ok = isinstance(reference, tuple) and len(reference) in (5, 6)
        if not ok or reference[0] != "storage" or reference[5:] not in ((), (None,)):
            raise PickleError("it refers to something else than a storage")
        _, kind, key, _, size = reference[:5]
        # The hash of other tuples may take forever.
        known = isinstance(kind, Name) and kind in STORAGES
        if not known or not isinstance(key, str) or not _is_count(size):
            raise PickleError("it refers to a storage of another kind")
        found = Storage(key, DTYPES[kind.name], size)
        if storages.setdefault(key, found) != found:
            raise PickleError(f"storage {shown(key)} has two sizes or dtypes")
        return found

    pickle = Pickle(stream, calls=CALLS, values=VALUES, persistent=outside)
    return pickle.load()


def _tensor(storage: Any, offset: Any, shape: Any, strides: Any, *_: Any) -> Tensor:
    """Make a tensor as `torch._utils._rebuild_tensor_v2` would; the rest is autograd's.

    Raises:
      PickleError: it does not lie in its storage, or is larger.
    """
    counts = (
        isinstance(shape, tuple)
        and isinstance(strides, tuple)
        and len(shape) == len(strides) <= MAX_DIMS
        and all(map(_is_count, (offset, *shape, *strides)))
    )
    if not isinstance(storage, Storage) or not counts:
        raise PickleError("a tensor has no storage, shape and strides")
    size = math.prod(shape)
    last = offset + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    if size and (last >= storage.size or size > storage.size):
        raise PickleError(
            f"a tensor {list(shape)} does not lie within its {storage.size:,} values"
        )
    return Tensor(storage, offset, shape, strides)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**48


def _empty_dict() -> dict[Any, Any]:
    # `dict` itself would take arguments, with keys that nobody has looked at.
    return {}


def _state_dict(value: Any) -> dict[str, Tensor]:
    """Return the tensors by their names, wherever a training script has put them."""
    for name in CONTAINERS:
        if not isinstance(value, dict) or _has_tensors(value):
            break
        value = value.get(name, value)
    if not isinstance(value, dict) or not _has_tensors(value):
        raise ValueError(f"there is no dict of tensors, nor one under {CONTAINERS}")
    for name, tensor in value.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            raise ValueError(f"{shown(str(name))} is no tensor")
    for prefix in PREFIXES:
        if all(name.startswith(prefix) for name in value):
            value = {name.removeprefix(prefix): x for name, x in value.items()}
    return value


def _has_tensors(value: dict[Any, Any]) -> bool:
    return any(isinstance(x, Tensor) for x in value.values())


def _array(name: str, tensor: Tensor, storages: Storages) -> np.ndarray:
    """Return the view of the file that a tensor is."""
    storage = tensor.storage
    itemsize = storage.dtype.itemsize
    content = storages(storage)
    if len(content) != storage.size * itemsize:
        raise ValueError(f"the values of {shown(name)} have another size than it says")
    values = np.frombuffer(content, storage.dtype)
    return np.lib.stride_tricks.as_strided(
        values[tensor.offset :],
        tensor.shape,
        tuple(itemsize * stride for stride in tensor.strides),
        writeable=False,
    )


STORAGES = frozenset(Name("torch", kind) for kind in DTYPES)
CALLS: Mapping[Name, Callable[..., Any]] = {
    Name("collections", "OrderedDict"): _empty_dict,
    Name("torch._utils", "_rebuild_tensor"): _tensor,
    Name("torch._utils", "_rebuild_tensor_v2"): _tensor,
    Name("torch._utils", "_rebuild_parameter"): lambda value, *_: value,
    Name("torch", "Size"): lambda shape: shape,
    Name("torch", "device"): lambda *_: None,
}
VALUES = STORAGES | {
    Name("torch", kind)
    for kind in ("float64", "float32", "float16", "bfloat16", "int64", "uint8", "bool")
}
