"""Conversion of images to the packed format."""

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
# Arrays contain the largest centred square crop of an image.
SQUARE = Fit(centre_part=1.0)


@dataclass(frozen=True)
class Form:
    """Packed format of images.

    Attributes:
      format: Image files (`jpeg`) or arrays (`raw`).
      size: Maximum shorter side of image files, or both sides of arrays, in pixels;
        None keeps the stored size.
      image_shape: Shape of the packed images (H, W, C); H and W are None if sizes
        differ.
      max_pixels: Maximum number of pixels per image; larger images are unreadable.
      white_level: 16-bit value to map to 255. Defaults to 65535.
    """

    format: Literal["jpeg", "raw"]
    size: int | None
    image_shape: tuple[int | None, int | None, int]
    max_pixels: int
    white_level: int | None = None

    @property
    def column(self) -> Column | None:
        """Column of image arrays; None for image files."""
        if self.format == "jpeg":
            return None
        height, width, channels = self.image_shape
        assert height is not None and width is not None
        return Column("|u1", (height, width, channels))

    def convert(self, image: StoredFile | np.ndarray) -> bytes:
        """Convert an image to packed bytes.

        Raises:
          UnreadableError: The image is unreadable, or its shape is not
            `image_shape`.
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
                f"the image has {image.shape[1]}x{image.shape[0]} pixels, expected "
                f"{width}x{height}"
            )
        return image.tobytes()

    def _open(self, stored: StoredFile) -> ImageFile:
        return open_file(stored.data, self.max_pixels, self.white_level)

    def _file(self, stored: StoredFile) -> bytes:
        """Copy an image file, or convert it to a JPEG with a shorter side of `size`.

        If `size` is None, all files are copied. Otherwise JPEGs with a shorter side of
        at most `size` are copied, and all other files are converted, without enlarging
        small images. Copied files are decoded too, to detect unreadable files.
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
        # JPEG is limited to 65,500 pixels per side.
        except ValueError as error:
            raise UnreadableError(
                f"the image cannot be encoded as JPEG: {error}"
            ) from error


def make_form(
    store: Store,
    format: Literal["jpeg", "raw"],
    size: int | None,
    max_pixels: int,
    shape: tuple[int | None, int | None, int],
) -> Form:
    """Choose the packed format of a store's images.

    Args:
      store: Store of the images to pack.
      format: Image files (`jpeg`) or arrays (`raw`).
      size: Size in pixels; see `Form`.
      max_pixels: Maximum number of pixels per image; larger images are unreadable.
      shape: Stored image shape (H, W, C); H and W are None if sizes differ.

    Raises:
      UserError: The images cannot be packed in this format or size.
    """
    (image,) = store.read(np.zeros(1, np.int64))[0]
    height, width, channels = shape
    if size is not None and size < 1:
        raise UserError(f"--size {size}: expected a number of pixels above 0")
    if size is not None and channels not in (1, 3):
        raise UserError(
            f"--size {size}: images with {channels} channels cannot be resized; leave "
            "--size out"
        )
    if format == "jpeg" and not isinstance(image, StoredFile):
        raise UserError(
            "--format jpeg requires image files, but the data set has arrays: give "
            "--format raw"
        )
    if format == "raw" and size is not None:
        height = width = size
    if format == "raw" and (height is None or width is None):
        raise UserError("--format raw requires images of one size: give --size")
    if format == "jpeg" and size and height and width and min(height, width) > size:
        height, width = _shorter_side(height, width, size)
    return Form(format, size, (height, width, channels), max_pixels)


def _shorter_side(height: int, width: int, size: int) -> tuple[int, int]:
    """Height and width after resizing the shorter side to `size`."""
    side = min(height, width)
    return round(height * size / side), round(width * size / side)
