"""Images of any kind that a user has, as the pixels that a model takes.

The processes of the server that decode images import this: nothing of models.
"""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from PIL import Image, ImageOps

from jaxtrain.config import DataConfig
from jaxtrain.data import files, images
from jaxtrain.data.files import UnreadableError
from jaxtrain.data.fit import Fit
from jaxtrain.data.input_kind import PICTURES, InputKind
from jaxtrain.data.read_files import LargeFile, read_unless_large

# A file by its path, its bytes, a picture of Pillow, or uint8 (H, W, C) or (H, W).
AnyImage = str | os.PathLike[str] | bytes | Image.Image | np.ndarray
MAX_PIXELS = DataConfig.max_pixels
# Height and width of an image, behind its pixels.
SIZE_BYTES = 8


def to_pixels(
    image: AnyImage,
    shape: tuple[int, int, int],
    fit: Fit,
    max_pixels: int = MAX_PIXELS,
    input: InputKind = PICTURES,
) -> np.ndarray:
    """Return an image as an evaluation sees it, uint8 of `shape` (H, W, C).

    Args:
      image: Image of any kind.
      shape: Shape that the model takes.
      fit: How the image gets this size.
      max_pixels: Number of pixels of a file beyond which it is refused.
      input: Kind of input; other kinds than pictures have a dtype of their own.

    Raises:
      UnreadableError: it is no image, or damaged, or cannot get this shape.
    """
    given = _read(image) if isinstance(image, str | os.PathLike) else image
    if not input.are_pictures:
        return input.to_stored(given)
    if isinstance(given, bytes | LargeFile):
        return _of_file(given, shape, fit, max_pixels)
    if isinstance(given, Image.Image):
        return _fit(_of_picture(given, shape[-1]), shape, fit)
    if isinstance(given, np.ndarray):
        return _of_array(given, shape, fit)
    raise UnreadableError(
        f"a {type(image).__name__} is no image: give a path, bytes, a picture of "
        "Pillow or a uint8 array"
    )


def to_sized_pixels(
    data: bytes,
    shape: tuple[int, int, int],
    fit: Fit,
    max_pixels: int,
    input: InputKind = PICTURES,
) -> np.ndarray:
    """Return a file as `to_pixels` does, and its size behind it, as bytes, uint8 (n,).

    The size is the height and width of the image, upright; of other inputs that of
    `shape`.
    """
    pixels = to_pixels(data, shape, fit, max_pixels, input)
    found = size_of(data, max_pixels) if input.are_pictures else shape[:2]
    size = np.array(found, "<u4").view(np.uint8)
    return np.concatenate([pixels.ravel().view(np.uint8), size])


def sized_pixels(
    flat: np.ndarray, shape: tuple[int, int, int], dtype: type[np.generic]
) -> tuple[np.ndarray, tuple[int, int]]:
    """Return the pixels, and the size, that `to_sized_pixels` put together.

    Args:
      flat: Its result, uint8 (n,).
      shape: Shape that it was made for.
      dtype: Dtype of the pixels (`InputKind.dtype`).
    """
    height, width = flat[-SIZE_BYTES:].view("<u4").tolist()
    return flat[:-SIZE_BYTES].view(dtype).reshape(shape), (height, width)


def size_of(image: AnyImage, max_pixels: int = MAX_PIXELS) -> tuple[int, int]:
    """Return the height and width of an image, upright; of a file, by its header.

    Raises:
      UnreadableError: it is no image, or damaged.
    """
    given = _read(image) if isinstance(image, str | os.PathLike) else image
    if isinstance(given, bytes | LargeFile):
        file = files.open_file(given, max_pixels)
        return file.height, file.width
    if isinstance(given, Image.Image):
        return np.asarray(ImageOps.exif_transpose(given)).shape[:2]
    return given.shape[0], given.shape[1]


def _read(path: str | os.PathLike[str]) -> bytes | LargeFile:
    try:
        found = read_unless_large(os.fsencode(path))
    except ValueError as error:  # Such as a zero byte.
        raise UnreadableError(str(error)) from None
    if isinstance(found, OSError):
        raise UnreadableError(found.strerror or str(found))
    return found


def _of_picture(picture: Image.Image, channels: int) -> np.ndarray:
    try:
        picture = ImageOps.exif_transpose(picture)
        return _with_channels(np.asarray(files.convert(picture, channels)))
    # One that is not read yet may be a damaged file.
    except Exception as error:
        raise UnreadableError(" ".join(str(error).split()) or repr(error)) from error


def _of_file(
    data: bytes | LargeFile, shape: tuple[int, int, int], fit: Fit, max_pixels: int
) -> np.ndarray:
    file = files.open_file(data, max_pixels, fit.white_level)
    height, width, channels = shape
    if height == width:
        return images.fit_file(file, height, channels, fit=fit)
    return _fit(file.decode(channels), shape, fit)


def _of_array(array: np.ndarray, shape: tuple[int, int, int], fit: Fit) -> np.ndarray:
    array = _with_channels(array)
    if array.dtype != np.uint8 or array.ndim != 3 or not array.size:
        raise UnreadableError(
            f"an array {array.dtype.name}{list(array.shape)} is no image: give uint8 "
            f"{_expected(shape)}"
        )
    if array.shape[-1] != shape[-1] and not {array.shape[-1], shape[-1]} <= {1, 3}:
        raise UnreadableError(
            f"it has {array.shape[-1]} channels, and the model takes {shape[-1]}: give "
            f"{_expected(shape)}"
        )
    return _fit(images.to_channels(array, shape[-1]), shape, fit)


def _expected(shape: tuple[int, int, int]) -> str:
    sizes = ", ".join(map(str, shape))
    return f"(height, width, channels), here ({sizes}), or (N, {sizes}) for N images"


def _with_channels(array: np.ndarray) -> np.ndarray:
    return array[..., None] if array.ndim == 2 else array


def _fit(pixels: np.ndarray, shape: tuple[int, int, int], fit: Fit) -> np.ndarray:
    height, width, _ = shape
    if pixels.shape == shape:
        return pixels
    if height != width:
        raise UnreadableError(
            f"it has {pixels.shape[1]}x{pixels.shape[0]} pixels, and the model takes "
            f"{width}x{height}: resize it"
        )
    return images.centre_fit(pixels, height, fit)


def as_sequence(given: Any, shape: tuple[int, int, int]) -> Sequence[AnyImage]:
    """Return one or many images as a sequence.

    Args:
      given: One image of any kind, or many. An array (N, H, W, C) is many, and so is
        one without the channels whose images, or clips, have the size of the model.
      shape: Shape that the model takes.
    """
    if isinstance(given, np.ndarray):
        sizes = 1 if shape[1:] == (1, 1) else 2
        fits = given.ndim == 1 + sizes and given.shape[1:] == shape[:sizes]
        many = given.ndim == 4 or (fits and given.shape != shape)
        return list(given) if many else [given]
    if isinstance(given, str | os.PathLike | bytes | Image.Image):
        return [given]
    return list(given)
