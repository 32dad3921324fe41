"""Images of any source in the form in which they are packed."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import simplejpeg

from jaxtrain.data import images
from jaxtrain.data.files import ImageFile, StoredFile, UnreadableError, open_file
from jaxtrain.data.fit import Fit
from jaxtrain.data.stores import Store
from jaxtrain.errors import UserError
from jaxtrain.plugins.packed.index import Column

JPEG_QUALITY = 95
# Arrays hold the whole centred square of an image.
SQUARE = Fit(centre_part=1.0)


@dataclass(frozen=True)
class Form:
    """How images are packed.

    Attributes:
      format: as files (jpeg) or as arrays (raw).
      size: of the shorter side of files; of both sides of arrays; None: as stored.
      image_shape: of the packed images.
      max_pixels: a larger image is unreadable.
      white_level: value of 16 bits that becomes 255; None: the largest.
    """

    format: Literal["jpeg", "raw"]
    size: int | None
    image_shape: tuple[int | None, int | None, int]
    max_pixels: int
    white_level: int | None = None

    @property
    def column(self) -> Column | None:
        """Describe the arrays; None where images are files."""
        if self.format == "jpeg":
            return None
        height, width, channels = self.image_shape
        assert height is not None and width is not None
        return Column("|u1", (height, width, channels))

    def convert(self, image: StoredFile | np.ndarray) -> bytes:
        """Return the bytes to pack of an image.

        Raises:
          UnreadableError: it cannot be read, or has another shape than the others.
        """
        if self.format == "jpeg":
            assert isinstance(image, StoredFile)
            return self._file(image)
        if isinstance(image, StoredFile):
            file = self._open(image)
            image = file.decode(self.image_shape[-1])
        if self.size is not None:
            image = images.centre_fit(image, self.size, SQUARE)
        height, width, _ = self.image_shape
        if image.shape != self.image_shape:
            raise UnreadableError(
                f"it has {image.shape[1]}x{image.shape[0]} pixels, expected "
                f"{width}x{height}"
            )
        return image.tobytes()

    def _open(self, stored: StoredFile) -> ImageFile:
        return open_file(stored.data, self.max_pixels, self.white_level)

    def _file(self, stored: StoredFile) -> bytes:
        """Return an image file as it is, or as a JPEG whose shorter side is `size`.

        With a size, a JPEG that is not larger stays as it is, and other formats become
        JPEGs. All are decoded, to see that they can be.
        """
        file, channels = self._open(stored), self.image_shape[-1]
        pixels = file.decode(channels)
        shorter = min(file.height, file.width)
        if self.size is None or (file.format == "JPEG" and shorter <= self.size):
            return file.data
        if shorter > self.size:
            shape = _shorter_side(file.height, file.width, self.size)
            pixels = images.resize(pixels, shape)
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


def make_form(
    store: Store,
    format: Literal["jpeg", "raw"],
    size: int | None,
    max_pixels: int,
    shape: tuple[int | None, int | None, int],
) -> Form:
    """Return how the images of a store are packed.

    Args:
      store: Images to pack.
      format: As files, or as arrays.
      size: Size in pixels; see `Form`.
      max_pixels: A larger image is unreadable.
      shape: (H, W, C) of the stored images; None where they differ in size.

    Raises:
      UserError: they cannot be packed so.
    """
    (image,) = store.read(np.zeros(1, np.int64))[0]
    height, width, channels = shape
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
        height, width = _shorter_side(height, width, size)
    return Form(format, size, (height, width, channels), max_pixels)


def _shorter_side(height: int, width: int, size: int) -> tuple[int, int]:
    """Return the height and width of an image whose shorter side becomes `size`."""
    side = min(height, width)
    return round(height * size / side), round(width * size / side)
