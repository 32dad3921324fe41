"""Images of any source in the form in which they are packed."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import simplejpeg
from PIL import Image

from jaxtrain.data import images
from jaxtrain.data.files import StoredFile, UnreadableError, open_file
from jaxtrain.data.packed.index import Column
from jaxtrain.data.stores import Store
from jaxtrain.errors import UserError

JPEG_QUALITY = 95
Shape = tuple[int | None, int | None, int]


@dataclass(frozen=True)
class Form:
    """How images are packed.

    Attributes:
      format: as files (jpeg) or as arrays (raw).
      size: of the shorter side of files; of both sides of arrays; None: as stored.
      image_shape: of the packed images.
      max_pixels: a larger image is unreadable.
    """

    format: Literal["jpeg", "raw"]
    size: int | None
    image_shape: Shape
    max_pixels: int

    @property
    def column(self) -> Column | None:
        """Describe the arrays; None where images are files."""
        return Column("|u1", _known(self.image_shape)) if self.format == "raw" else None

    def convert(self, image: StoredFile | np.ndarray) -> bytes:
        """Return the bytes to pack of an image.

        Raises:
          UnreadableError: it cannot be read.
        """
        channels = self.image_shape[-1]
        if self.format == "jpeg":
            assert isinstance(image, StoredFile)
            return to_file(image, self.size, channels, self.max_pixels)
        if self.size is None:
            return to_shape(image, _known(self.image_shape), self.max_pixels).tobytes()
        return to_square(image, self.size, channels, self.max_pixels).tobytes()


def make_form(
    store: Store, format: Literal["jpeg", "raw"], size: int | None, max_pixels: int
) -> Form:
    """Return how the images of a store are packed.

    Raises:
      UserError: they cannot be packed so.
    """
    (image,) = store.read(np.zeros(1, np.int64))[0]
    height, width, channels = store.image_shape
    if size is not None and size < 1:
        raise UserError(f"--size {size}: expected a number of pixels above 0")
    if size is not None and channels not in (1, 3):
        raise UserError(f"--size {size}: images of {channels} channels are not resized")
    if format == "jpeg" and not isinstance(image, StoredFile):
        raise UserError(
            "--format jpeg packs image files, but these are arrays: use raw"
        )
    if format == "raw" and size is not None:
        height = width = size
    if format == "raw" and (height is None or width is None):
        raise UserError("--format raw: the images differ in size: give --size")
    if format == "jpeg" and size and height and width and min(height, width) > size:
        height, width = shorter_side(height, width, size)
    return Form(format, size, (height, width, channels), max_pixels)


def to_square(
    image: StoredFile | np.ndarray, size: int, channels: int, max_pixels: int
) -> np.ndarray:
    """Return the whole centred square of an image, in its size, (size, size, C).

    Raises:
      UnreadableError: it is a file that cannot be read.
    """
    pixels = _decode(image, channels, max_pixels)
    height, width = pixels.shape[:2]
    if (height, width) == (size, size):
        return pixels
    side = min(height, width)
    left, top = (width - side) / 2, (height - side) / 2
    return _resize(pixels, (size, size), (left, top, left + side, top + side))


def to_shape(
    image: StoredFile | np.ndarray, shape: tuple[int, int, int], max_pixels: int
) -> np.ndarray:
    """Return an image that has this shape already.

    Raises:
      UnreadableError: it has another, or is a file that cannot be read.
    """
    pixels = _decode(image, shape[-1], max_pixels)
    if pixels.shape != shape:
        height, width, _ = pixels.shape
        raise UnreadableError(
            f"it has {width}x{height} pixels, expected {shape[1]}x{shape[0]}"
        )
    return pixels


def to_file(
    stored: StoredFile, size: int | None, channels: int, max_pixels: int
) -> bytes:
    """Return an image file as it is, or as a JPEG whose shorter side is `size`.

    With a size, a JPEG that is not larger stays as it is, and other formats become
    JPEGs. All are decoded, to see that they can be.

    Raises:
      UnreadableError: it cannot be read.
    """
    file = open_file(stored.data, max_pixels)
    pixels = file.decode(channels)
    shorter = min(file.height, file.width)
    if size is None or (file.format == "JPEG" and shorter <= size):
        return file.data
    if shorter > size:
        height, width = shorter_side(file.height, file.width, size)
        pixels = _resize(pixels, (width, height))
    try:
        return simplejpeg.encode_jpeg(
            np.ascontiguousarray(pixels),
            quality=JPEG_QUALITY,
            colorspace="GRAY" if channels == 1 else "RGB",
            colorsubsampling="Gray" if channels == 1 else "420",
        )
    # A side of more than 65,500 pixels is none of a JPEG.
    except ValueError as error:
        raise UnreadableError(f"it cannot be a JPEG: {error}") from error


def shorter_side(height: int, width: int, size: int) -> tuple[int, int]:
    """Return the height and width of an image whose shorter side becomes `size`."""
    side = min(height, width)
    return round(height * size / side), round(width * size / side)


def _known(shape: Shape) -> tuple[int, int, int]:
    height, width, channels = shape
    assert height is not None and width is not None
    return height, width, channels


def _decode(
    image: StoredFile | np.ndarray, channels: int, max_pixels: int
) -> np.ndarray:
    if isinstance(image, np.ndarray):
        return images.to_channels(image, channels)
    return open_file(image.data, max_pixels).decode(channels)


def _resize(
    pixels: np.ndarray,
    size: tuple[int, int],
    box: images.Box | None = None,
) -> np.ndarray:
    """Resample to a width and height, bilinearly and antialiased."""
    channels = pixels.shape[-1]
    picture = Image.fromarray(pixels[..., 0] if channels == 1 else pixels)
    resized = picture.resize(size, Image.Resampling.BILINEAR, box)
    return np.asarray(resized).reshape(size[1], size[0], channels)
