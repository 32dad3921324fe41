"""Image files to pixels: upright, in the channels asked for, never too large."""

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
# How an orientation is undone.
UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
# From here on rows and columns change places.
FIRST_TURNED = 5
# Pillow turns the pixels of these upright itself.
TURNED_WHEN_DECODED = ("TIFF",)
# A JPEG is decoded at one of these parts of its size; 3/4 takes longer than all of it.
JPEG_FACTORS = (8, 4, 2)
# What simplejpeg says of bytes that are too many, and nothing is lost.
HARMLESS = "extraneous bytes"
# By so many of the first bytes the format is known, and the size of a WebP.
START_BYTES = 32
# What transparent pixels show.
BACKGROUND = 255


class StoredFile(NamedTuple):
    """An image file as a store reads it.

    Attributes:
      name: as messages call it.
      data: the file, why it could not be read, or where it is if it is large.
    """

    name: str
    data: FileData


@dataclass(frozen=True)
class ImageFile:
    """An image file whose header was read.

    Attributes:
      format: as Pillow calls it.
      height: of the upright image, in pixels.
      width: of the upright image, in pixels.
      mode: of its pixels, as Pillow calls it.
      orientation: of the stored pixels, as EXIF numbers it; 1 is upright.
      white_level: Value of 16 bits that becomes 255; None: the largest.
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
        """Transpose that turns the decoded pixels upright; None: they are."""
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
          least: the height and width that are enough; a JPEG then has 1/2, 1/4 or 1/8
            of its size, if that is not less. None: all of it.
          scratch: bytes that the pixels may lie in, at least as many as they have.

        Raises:
          UnreadableError: the file is damaged.
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
        """Return the same pixels as a picture of Pillow's.

        What Pillow itself decodes is not copied into an array and back.
        """
        if self._is_plain_jpeg(channels):
            return to_picture(self.decode(channels))
        try:
            picture = self._decode_any(channels)
        # Damaged files make Pillow raise all kinds of errors.
        except Exception as error:
            raise UnreadableError(reason_of(error)) from error
        # A HEIF may have other pixels than its header says.
        height, width = self._as_stored((picture.height, picture.width))
        if self.format != "JPEG" and (height, width) != (self.height, self.width):
            raise UnreadableError(
                f"it has {width}x{height} pixels, and says {self.width}x{self.height}"
            )
        return self._upright(picture)

    def _is_plain_jpeg(self, channels: int) -> bool:
        """Whether a faster decoder than Pillow takes it."""
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
        """Decode a JPEG, also if there is something between its parts."""
        options: dict[str, Any] = {}
        if least is not None:
            height, width = self._as_stored((self.height, self.width))
            min_height, min_width = self._as_stored(least)
            for factor in JPEG_FACTORS:
                if height >= factor * min_height and width >= factor * min_width:
                    # The factor alone has no effect.
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
            # Pillow skips them, as browsers do; some cameras write them.
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
      data: the file, why it could not be read, or where it is if it is large: it is
        then read once its header is known to be that of an image of this size.
      max_pixels: a larger image is refused.
      white_level: value of 16 bits that becomes 255; None: the largest.

    Raises:
      UnreadableError: it is no image, too large, or would take very long to decode.
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
    # Only progressive scans take longer than their bytes explain.
    if header.progressive:
        decode_limits.check_scans(data, width, height, max_pixels)
    orientation = header.orientation if header.orientation in UPRIGHT else 1
    if orientation >= FIRST_TURNED and header.format not in TURNED_WHEN_DECODED:
        height, width = width, height
    return ImageFile(
        data, header.format, height, width, header.mode, orientation, white_level
    )


def orientation_of(image: np.ndarray | StoredFile, max_pixels: int) -> int:
    """Return the orientation of an image, as EXIF numbers it; 1 of an array."""
    if isinstance(image, np.ndarray):
        return 1
    return open_file(image.data, max_pixels).orientation


def _read_large(large: LargeFile, max_pixels: int) -> bytes | OSError:
    """Return the bytes of a file, which are no more than its header explains."""
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
    """Return uint8 (H, W, C) of 1, 3 or 4 channels as a picture of Pillow's."""
    return Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)


def convert(image: Image.Image, channels: int) -> Image.Image:
    """Return a grey or colour image of 8 bits, over white where it is transparent."""
    transparent = channels != 4 and image.has_transparency_data
    if image.mode == MODES[channels] and not transparent:
        return image
    if image.mode.startswith("I;16"):
        # Pillow's own conversion would cut off all that is above 255.
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    elif image.mode in ("I", "F"):
        raise ValueError("its pixels have 32 bits: save it with 8 or 16")
    if transparent:
        image = image.convert("RGBA")
        background = Image.new("RGBA", image.size, (BACKGROUND,) * 4)
        image = Image.alpha_composite(background, image)
    return image.convert(MODES[channels])
