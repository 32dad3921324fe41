"""Cropping, resizing and channel conversion of stored images on the host."""

import threading

import numpy as np
from PIL import Image

from jaxtrain.data import files
from jaxtrain.data.files import ImageFile
from jaxtrain.data.fit import FIT, Fit
from jaxtrain.data.random_windows import Box
from jaxtrain.errors import UserError

# Value of output pixels outside the image, in all channels.
BORDER = 128

FILTERS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}

# Maximum size in bytes of a thread's decoding buffer; larger images get new memory.
MAX_SCRATCH_BYTES = 2**24
_thread_local = threading.local()


def lacks_size(stored: tuple[int | None, int | None, int], size: int | None) -> bool:
    """Whether images differ in size and no size is configured.

    Args:
      stored: Shape (H, W, C) of stored images; H and W are None if sizes differ.
      size: Value of `data.image_size`, or None.
    """
    return size is None and None in stored[:2]


def converted_shape(
    stored: tuple[int | None, int | None, int], size: int | None, channels: int | None
) -> tuple[int, int, int]:
    """Return the shape (H, W, C) of converted images.

    Args:
      stored: Shape (H, W, C) of stored images; H and W are None if sizes differ.
      size: Height and width of converted images. None means the stored size.
      channels: Number of channels of converted images. Defaults to the stored number.

    Raises:
      UserError: The conversion is unsupported.
    """
    height, width = size or stored[0], size or stored[1]
    shape = (height, width, channels or stored[-1])
    if lacks_size(stored, size):
        raise UserError("the images differ in size: set data.image_size")
    assert height is not None and width is not None
    if shape != stored and stored[-1] not in (1, 3):
        raise UserError(
            f"images with {stored[-1]} channels can only be used in the stored shape, "
            f"{'x'.join(map(str, stored))}: leave data.image_size and data.channels "
            "out"
        )
    return height, width, shape[-1]


def to_channels(images: np.ndarray, channels: int) -> np.ndarray:
    """Convert images, uint8 (..., C), to 1 (grey) or 3 channels (RGB).

    Grey is the luminance of ITU-R 601, in Pillow's fixed-point arithmetic.
    """
    if images.shape[-1] == channels:
        return images
    if channels == 3:
        return np.repeat(images, 3, axis=-1)
    weights = np.array([19595, 38470, 7471], np.uint32)
    return ((images @ weights + 0x8000) >> 16).astype(np.uint8)[..., None]


def centre_fit(image: np.ndarray, size: int, fit: Fit = FIT) -> np.ndarray:
    """Resize the centre crop of an image (H, W, C) to (size, size, C).

    Images that already have this size are returned unchanged.
    """
    height, width, _ = image.shape
    if height == width == size:
        return image
    # As in resize-then-crop, pixels outside the crop contribute to its edge pixels.
    box = fit.centre_box(height, width, size)
    return resize(image, size, fit.interpolation, box)


def fit_file(file: ImageFile, size: int, channels: int, fit: Fit = FIT) -> np.ndarray:
    """Decode a file and resize its centre crop, like `centre_fit`."""
    if file.height == file.width == size:
        return file.decode(channels)
    box = fit.centre_box(file.height, file.width, size)
    image, box = decode_box(file, size, channels, box)
    return resize(image, size, fit.interpolation, box)


def decode_box(
    file: ImageFile, size: int, channels: int, box: Box
) -> tuple[np.ndarray, Box]:
    """Decode an image file whose `box` will be resized to `size`.

    A JPEG is decoded at 1/2, 1/4 or 1/8 of its size if the box then has at least `size`
    pixels on each side.

    Returns:
      The decoded image, which is valid until the thread decodes another image; and the
      box in pixels of the decoded image.
    """
    height, width = file.height, file.width
    left, top, right, bottom = box
    least = size * height / (bottom - top), size * width / (right - left)
    image = file.decode(channels, least, _scratch(height * width * channels))
    rows, columns = image.shape[0] / height, image.shape[1] / width
    return image, (left * columns, top * rows, right * columns, bottom * rows)


def _scratch(size: int) -> np.ndarray | None:
    """Return this thread's decoding buffer, or None if the size exceeds the limit.

    Reuse is faster than new allocations, which the kernel clears page by page.
    """
    if size > MAX_SCRATCH_BYTES:
        return None
    scratch: np.ndarray | None = getattr(_thread_local, "scratch", None)
    if scratch is None or scratch.size < size:
        scratch = _thread_local.scratch = np.empty(size, np.uint8)
    return scratch


def resize(
    image: np.ndarray,
    size: int | tuple[int, int],
    interpolation: str = "bilinear",
    box: Box | None = None,
) -> np.ndarray:
    """Resize a box of an image (H, W, C), antialiased.

    Args:
      image: Image, uint8 (H, W, C).
      size: Height and width of the result, or one number for both.
      interpolation: Interpolation, a key of FILTERS.
      box: Box to resize. Defaults to the full image. Outside the image, output pixels
        are `BORDER`; the border is rounded to an integral number of output pixels.
    """
    height, width = (size, size) if isinstance(size, int) else size
    if box is not None:
        left, top, right, bottom = box
        beyond = min(left, top, image.shape[1] - right, image.shape[0] - bottom)
        if beyond < -1e-6:  # The box exceeds the image by more than rounding errors.
            return _resize_between(image, (height, width), interpolation, box)
    channels = image.shape[-1]
    resized = files.to_picture(image).resize(
        (width, height), FILTERS[interpolation], box
    )
    return np.asarray(resized).reshape(height, width, channels)


def _resize_between(
    image: np.ndarray, size: tuple[int, int], interpolation: str, box: Box
) -> np.ndarray:
    left, top, right, bottom = box
    rows, above, below = _within(top, bottom, image.shape[0], size[0])
    columns, before, behind = _within(left, right, image.shape[1], size[1])
    bordered = np.full((*size, image.shape[-1]), BORDER, np.uint8)
    inner = rows.stop - rows.start, columns.stop - columns.start
    part = before, above, behind, below
    bordered[rows, columns] = resize(image, inner, interpolation, part)
    return bordered


def _within(
    start: float, stop: float, stored: int, size: int
) -> tuple[slice, float, float]:
    scale = (stop - start) / size
    first, last = 0, size
    begin, end = start, stop
    if start < 0:
        first, begin = round(-start / scale), 0.0
    if stop > stored:
        last, end = round((stored - start) / scale), float(stored)
    return slice(first, last), begin, end
