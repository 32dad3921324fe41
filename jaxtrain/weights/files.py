"""Weight files: safetensors, and PyTorch's `torch.save`.

A safetensors file is memory-mapped, and its arrays are views. Format:
https://github.com/huggingface/safetensors.
"""

import hashlib
import math
import mmap
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from jaxtrain.errors import UserError
from jaxtrain.json_files.parse import parse
from jaxtrain.regular_file import open_regular
from jaxtrain.weights import pth
from jaxtrain.weights.pth import shown

SAFETENSORS, TORCH = (".safetensors",), (".pth", ".pt", ".bin")
# In bytes: size of the header-length field, and maximum size of the header.
LENGTH_BYTES, MAX_HEADER_BYTES = 8, 2**26
MAX_DIMS = 8
DTYPES = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "BF16": ml_dtypes.bfloat16,
    "I64": np.int64,
    "I32": np.int32,
    "I16": np.int16,
    "I8": np.int8,
    "U8": np.uint8,
    "BOOL": np.bool_,
}


def read(path: Path) -> dict[str, np.ndarray]:
    """Read a weight file; return its arrays, keyed by name.

    Raises:
      UserError: The format is unknown, the file is damaged, or PyTorch is required and
        not installed.
    """
    if path.suffix not in (*SAFETENSORS, *TORCH):
        known = ", ".join((*SAFETENSORS, *TORCH))
        raise UserError(f"{path}: expected a weight file with the extension {known}")
    is_torch = path.suffix in TORCH
    try:
        with open_regular(path) as file:
            if is_torch:
                return pth.read(path)
            view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        return _read_safetensors(view)
    except UserError:
        raise
    except OSError as error:
        raise UserError(
            f"{path} cannot be read ({error.strerror}): correct the path or the "
            "permissions"
        ) from None
    except (ValueError, RecursionError) as error:
        kind = (
            "file of torch.save with only tensors" if is_torch else "safetensors file"
        )
        raise UserError(
            f"{path} is not a complete {kind}: {error}; copy or download the file again"
        ) from None


def digest(path: Path) -> str:
    """Return the SHA-256 of a file.

    Raises:
      UserError: The file is unreadable.
    """
    try:
        with open_regular(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UserError(
            f"{path} cannot be read ({error.strerror}): correct the path or the "
            "permissions"
        ) from None


def _read_safetensors(view: memoryview) -> dict[str, np.ndarray]:
    size = int.from_bytes(view[:LENGTH_BYTES], "little")
    if size > min(MAX_HEADER_BYTES, len(view) - LENGTH_BYTES):
        raise ValueError("the header is truncated")
    data = view[LENGTH_BYTES + size :]
    header = parse(bytes(view[LENGTH_BYTES : LENGTH_BYTES + size]))
    if not isinstance(header, dict):
        raise ValueError("the header is not a JSON object")
    header.pop("__metadata__", None)
    return {name: _array(name, about, data) for name, about in header.items()}


def _array(name: str, about: Any, data: memoryview) -> np.ndarray:
    if not isinstance(about, dict) or about.get("dtype") not in tuple(DTYPES):
        kind = about.get("dtype") if isinstance(about, dict) else about
        raise ValueError(f"{shown(name)} has the unknown dtype {shown(str(kind))}")
    dtype = np.dtype(DTYPES[about["dtype"]])
    shape, offsets = _counts(about.get("shape")), _counts(about.get("data_offsets"))
    if shape is None or offsets is None or len(shape) > MAX_DIMS or len(offsets) != 2:
        raise ValueError(f"{shown(name)} has no valid shape or offsets")
    if offsets[1] - offsets[0] != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"the offsets of {shown(name)} do not match its shape")
    if offsets[1] > len(data):
        raise ValueError(f"{shown(name)} is truncated")
    return np.frombuffer(data[offsets[0] : offsets[1]], dtype).reshape(shape)


def _counts(values: Any) -> list[int] | None:
    ok = isinstance(values, list) and all(
        type(value) is int and 0 <= value < 2**48 for value in values
    )
    return values if ok else None
