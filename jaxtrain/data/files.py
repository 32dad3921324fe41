"""Decoding of image files: upright, in the requested channels, within size limits."""

import io
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import simplejpeg
from PIL import Image

from jaxtrain.data import decode_limits, depth, exif, formats
from jaxtrain.data.decode_limits import UnreadableError
from jaxtrain.data.image_header import read_header, reason_of
from jaxtrain.data.read_files import (
    LARGE_BYTES,
    MAX_FILE_BYTES,
    BoundedReader,
    FileData,
    LargeFile,
)
from jaxtrain.regular_file import open_regular

MODES = {1: "L", 3: "RGB", 4: "RGBA"}
# EXIF orientation -> transpose that undoes it.
UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
# Orientations from 5 to 8 swap rows and columns.
FIRST_TURNED = 5
# Formats that Pillow turns upright when it decodes the pixels.
TURNED_WHEN_DECODED = ("TIFF",)
# Downscaling factors of JPEG decoding. Decoding at 3/4 takes longer than at full size.
JPEG_FACTORS = (8, 4, 2)
# Substring of simplejpeg's error message for extraneous bytes, which are harmless.
HARMLESS = "extraneous bytes"
# Number of leading bytes that determine the format, and the size of a WebP.
START_BYTES = 32
# Grey level of the background on which transparent pixels are composited.
BACKGROUND = 255


class StoredFile(NamedTuple):
    """An encoded image file, as read by a store.

    Attributes:
      name: Name of the file in messages.
      data: Contents of the file, an error from reading it, or a `LargeFile`.
    """

    name: str
    data: FileData


@dataclass(frozen=True)
class ImageFile:
    """An image file with a parsed header.

    Attributes:
      data: Contents of the file.
      format: Pillow's name of the format.
      height: Height of the upright image, in pixels.
      width: Width of the upright image, in pixels.
      mode: Pillow's mode of the pixels.
      orientation: EXIF orientation of the stored pixels; 1 is upright.
      white_level: 16-bit value that is mapped to 255. None means 65535.
    """

    data: bytes = field(repr=False)
    format: str
    height: int
    width: int
    mode: str
    orientation: int
    white_level: int | None = None

    @property
    def transpose(self) -> Image.Transpose | None:
        """Transpose that turns the decoded pixels upright, or None if not needed."""
        if self.format in TURNED_WHEN_DECODED:
            return None
        return UPRIGHT.get(self.orientation)

    def decode(
        self,
        channels: int,
        least: tuple[float, float] | None = None,
        scratch: np.ndarray | None = None,
    ) -> np.ndarray:
        """Return the upright pixels, uint8 (h, w, channels).

        Args:
          channels: 1 for grey, 3 for colour, 4 for colour with alpha.
          least: Minimum height and width. A JPEG is decoded at 1/2, 1/4 or 1/8 of its
            size if the result is at least this large. None means full size.
          scratch: Buffer for the pixels, uint8, at least as large as the image.

        Raises:
          UnreadableError: The file is damaged.
        """
        if not self._is_plain_jpeg(channels):
            picture = self.picture(channels)
            return np.asarray(picture).reshape(picture.height, picture.width, channels)
        try:
            pixels = self._decode_jpeg(channels, least, scratch)
        except Exception as error:
            raise UnreadableError(reason_of(error)) from error
        if self.transpose is None:
            return pixels
        upright = np.asarray(self._upright(to_picture(pixels)))
        return upright.reshape(*upright.shape[:2], channels)

    def picture(self, channels: int) -> Image.Image:
        """Decode to a Pillow image, with the same pixels as `decode`.

        Pixels that Pillow decodes are not copied to an array and back.
        """
        if self._is_plain_jpeg(channels):
            return to_picture(self.decode(channels))
        try:
            picture = self._decode_any(channels)
        # Pillow raises many types of exceptions for damaged files.
        except Exception as error:
            raise UnreadableError(reason_of(error)) from error
        # The decoded size of a HEIF may differ from the size in its header.
        height, width = self._as_stored((picture.height, picture.width))
        if self.format != "JPEG" and (height, width) != (self.height, self.width):
            raise UnreadableError(
                f"the image has {width}x{height} pixels, but the header declares "
                f"{self.width}x{self.height}"
            )
        return self._upright(picture)

    def _is_plain_jpeg(self, channels: int) -> bool:
        """Whether to decode the file with simplejpeg, which is faster than Pillow."""
        return self.format == "JPEG" and self.mode in ("L", "RGB") and channels != 4

    def _upright(self, picture: Image.Image) -> Image.Image:
        return picture if self.transpose is None else picture.transpose(self.transpose)

    def _as_stored(self, size: Sequence[Any]) -> tuple[Any, Any]:
        height, width = size
        turned = self.transpose is not None and self.orientation >= FIRST_TURNED
        return (width, height) if turned else (height, width)

    def _decode_jpeg(
        self,
        channels: int,
        least: tuple[float, float] | None,
        scratch: np.ndarray | None,
    ) -> np.ndarray:
        """Decode a JPEG, even with extraneous bytes between its segments."""
        options: dict[str, Any] = {}
        if least is not None:
            height, width = self._as_stored((self.height, self.width))
            min_height, min_width = self._as_stored(least)
            for factor in JPEG_FACTORS:
                if height >= factor * min_height and width >= factor * min_width:
                    # `min_factor` has no effect without a minimum size.
                    options = {
                        "min_height": -(-height // factor),
                        "min_width": -(-width // factor),
                        "min_factor": factor,
                    }
                    break
        space = "GRAY" if channels == 1 else "RGB"
        try:
            return simplejpeg.decode_jpeg(self.data, space, buffer=scratch, **options)
        except ValueError as error:
            # Some cameras write extraneous bytes. Pillow skips them, as browsers do.
            if HARMLESS not in str(error):
                raise
            pixels = np.asarray(self._decode_any(channels))
            return pixels.reshape(*pixels.shape[:2], channels)

    def _decode_any(self, channels: int) -> Image.Image:
        known = formats.candidates(self.data)
        if self.white_level is not None:
            stored = depth.values(self.data, known)
            if stored is not None:
                return convert(depth.to_8_bits(stored, self.white_level), channels)
        with Image.open(io.BytesIO(self.data), formats=known) as image:
            picture = convert(image, channels)
            picture.load()
        return picture


def open_file(
    data: FileData, max_pixels: int, white_level: int | None = None
) -> ImageFile:
    """Read the header of an image file; no pixel is decoded.

    Args:
      data: Contents of the file, an error from reading it, or a `LargeFile`, which is
        read after a check of the image size in its header.
      max_pixels: Maximum number of pixels.
      white_level: 16-bit value that is mapped to 255. None means 65535.

    Raises:
      UnreadableError: The file is not an image, is too large, or decodes too slowly.
    """
    if isinstance(data, LargeFile):
        data = _read_large(data, max_pixels)
    if isinstance(data, OSError):
        raise UnreadableError(data.strerror or reason_of(data)) from data
    if not data:
        raise UnreadableError("the file is empty")
    decode_limits.check_header(data, max_pixels)
    header = read_header(exif.metadata_first(data), data[:START_BYTES], max_pixels)
    width, height = header.size
    # Only progressive JPEGs can decode more slowly than their file size suggests.
    if header.progressive:
        decode_limits.check_scans(data, width, height, max_pixels)
    orientation = header.orientation if header.orientation in UPRIGHT else 1
    if orientation >= FIRST_TURNED and header.format not in TURNED_WHEN_DECODED:
        height, width = width, height
    return ImageFile(
        data, header.format, height, width, header.mode, orientation, white_level
    )


def orientation_of(image: np.ndarray | StoredFile, max_pixels: int) -> int:
    """Return the EXIF orientation of a stored image; arrays are upright (1)."""
    if isinstance(image, np.ndarray):
        return 1
    return open_file(image.data, max_pixels).orientation


def _read_large(large: LargeFile, max_pixels: int) -> bytes | OSError:
    """Read a large file if its size in bytes is plausible for its number of pixels."""
    try:
        with open_regular(large.path, MAX_FILE_BYTES) as file:
            num_bytes = os.fstat(file.fileno()).st_size
            start = file.read(START_BYTES)
            size = decode_limits.webp_canvas(start)
            if size is None:
                decode_limits.check_strips(file)
                bounded: Any = BoundedReader(file, LARGE_BYTES)
                size = read_header(bounded, start, max_pixels).size
    except OSError as error:
        return error
    decode_limits.check_pixels(size, max_pixels)
    decode_limits.check_size(num_bytes, size)
    return large.read()


def to_picture(pixels: np.ndarray) -> Image.Image:
    """Convert uint8 (H, W, C) with 1, 3 or 4 channels to a Pillow image."""
    return Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)


def convert(image: Image.Image, channels: int) -> Image.Image:
    """Convert to 8-bit grey, RGB or RGBA; composite over white to remove alpha."""
    transparent = channels != 4 and image.has_transparency_data
    if image.mode == MODES[channels] and not transparent:
        return image
    if image.mode.startswith("I;16"):
        # `Image.convert` would clip values above 255.
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    elif image.mode in ("I", "F"):
        raise ValueError(
            "the pixels have 32 bits: save the image with 8 or 16 bits per channel"
        )
    if transparent:
        image = image.convert("RGBA")
        background = Image.new("RGBA", image.size, (BACKGROUND,) * 4)
        image = Image.alpha_composite(background, image)
    return image.convert(MODES[channels])
