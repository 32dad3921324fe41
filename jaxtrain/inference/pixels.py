"""Conversion of images of any type (paths, bytes, Pillow images, arrays) to pixels.

This module must not import models, as the server's decoding processes import it.
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

# A path, encoded bytes, a Pillow image, or uint8 (H, W, C) or (H, W).
AnyImage = str | os.PathLike[str] | bytes | Image.Image | np.ndarray
MAX_PIXELS = DataConfig.max_pixels
# Number of bytes that store the height and width in a result of `to_sized_pixels`.
SIZE_BYTES = 8


def to_pixels(
    image: AnyImage,
    shape: tuple[int, int, int],
    fit: Fit,
    max_pixels: int = MAX_PIXELS,
    input: InputKind = PICTURES,
) -> np.ndarray:
    """Decode, crop and resize an image for the model; return uint8 (H, W, C).

    Args:
      image: Path, encoded bytes, Pillow image, or uint8 array (H, W, C) or (H, W).
      shape: Input shape of the model, (H, W, C).
      fit: Method to crop and resize images of other sizes.
      max_pixels: Maximum number of pixels of an image file, to limit memory.
      input: Input type of the model; for types other than images, the result has the
        dtype `input.dtype`.

    Raises:
      UnreadableError: The input is not an image, is damaged, or is incompatible with
        the shape.
    """
    given = _read(image) if isinstance(image, str | os.PathLike) else image
    if not input.are_images:
        return input.to_stored(given)
    if isinstance(given, bytes | LargeFile):
        return _from_file(given, shape, fit, max_pixels)
    if isinstance(given, Image.Image):
        return _fit(_from_pillow(given, shape[-1]), shape, fit)
    if isinstance(given, np.ndarray):
        return _from_array(given, shape, fit)
    raise UnreadableError(
        "expected a path, bytes, a Pillow image or a uint8 array, got "
        f"{type(image).__name__}"
    )


def to_sized_pixels(
    data: bytes,
    shape: tuple[int, int, int],
    fit: Fit,
    max_pixels: int,
    input: InputKind = PICTURES,
) -> np.ndarray:
    """Return the result of `to_pixels` and the image size, packed as uint8 (n,).

    The last `SIZE_BYTES` bytes are height and width of the upright original image. For
    inputs other than images, they are `shape[:2]`.
    """
    pixels = to_pixels(data, shape, fit, max_pixels, input)
    shown_size = size_of(data, max_pixels) if input.are_images else shape[:2]
    size = np.array(shown_size, "<u4").view(np.uint8)
    return np.concatenate([pixels.ravel().view(np.uint8), size])


def sized_pixels(
    flat: np.ndarray, shape: tuple[int, int, int], dtype: type[np.generic]
) -> tuple[np.ndarray, tuple[int, int]]:
    """Split the result of `to_sized_pixels` into pixels and image size.

    Args:
      flat: Result of `to_sized_pixels`, uint8 (n,).
      shape: Shape of the pixels.
      dtype: Dtype of the pixels (`InputKind.dtype`).

    Returns:
      Pixels of `shape`, and (height, width) of the original image.
    """
    height, width = flat[-SIZE_BYTES:].view("<u4").tolist()
    return flat[:-SIZE_BYTES].view(dtype).reshape(shape), (height, width)


def size_of(image: AnyImage, max_pixels: int = MAX_PIXELS) -> tuple[int, int]:
    """Return the height and width of an image after its EXIF rotation.

    Raises:
      UnreadableError: The input is not an image, or is damaged.
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
        data = read_unless_large(os.fsencode(path))
    except ValueError as error:  # A path with a zero byte, for example.
        raise UnreadableError(str(error)) from None
    if isinstance(data, OSError):
        raise UnreadableError(data.strerror or str(data))
    return data


def _from_pillow(picture: Image.Image, channels: int) -> np.ndarray:
    try:
        picture = ImageOps.exif_transpose(picture)
        return _with_channels(np.asarray(files.convert(picture, channels)))
    # Pillow opens files lazily, and may detect damage only here.
    except Exception as error:
        raise UnreadableError(" ".join(str(error).split()) or repr(error)) from error


def _from_file(
    data: bytes | LargeFile, shape: tuple[int, int, int], fit: Fit, max_pixels: int
) -> np.ndarray:
    file = files.open_file(data, max_pixels, fit.white_level)
    height, width, channels = shape
    if height == width:
        return images.fit_file(file, height, channels, fit=fit)
    return _fit(file.decode(channels), shape, fit)


def _from_array(array: np.ndarray, shape: tuple[int, int, int], fit: Fit) -> np.ndarray:
    array = _with_channels(array)
    if array.dtype != np.uint8 or array.ndim != 3 or not array.size:
        raise UnreadableError(
            f"expected a uint8 array {_expected(shape)}, got "
            f"{array.dtype.name}{list(array.shape)}"
        )
    if array.shape[-1] != shape[-1] and not {array.shape[-1], shape[-1]} <= {1, 3}:
        raise UnreadableError(
            f"the image has {array.shape[-1]} channels, but the model takes "
            f"{shape[-1]}: give {_expected(shape)}"
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
            f"the image has {pixels.shape[1]}x{pixels.shape[0]} pixels, but the model "
            f"takes {width}x{height}: resize the image"
        )
    return images.centre_fit(pixels, height, fit)


def as_sequence(given: Any, shape: tuple[int, int, int]) -> Sequence[AnyImage]:
    """Return one or many images as a sequence.

    Args:
      given: One image of any type (`AnyImage`), or several. Arrays (N, H, W, C) are
        batches. Arrays (N, H, W) are batches if (H, W) is `shape[:2]`. For audio,
        arrays (N, samples) are batches if (samples,) is `shape[:1]`.
      shape: Input shape of the model, (H, W, C) or (samples, 1, 1).
    """
    if isinstance(given, np.ndarray):
        sizes = 1 if shape[1:] == (1, 1) else 2
        fits = given.ndim == 1 + sizes and given.shape[1:] == shape[:sizes]
        many = given.ndim == 4 or (fits and given.shape != shape)
        return list(given) if many else [given]
    if isinstance(given, str | os.PathLike | bytes | Image.Image):
        return [given]
    return list(given)
