"""Headers of image files, read by Pillow."""

from typing import BinaryIO, NamedTuple

from PIL import Image

from jaxtrain.data import decode_limits, depth, exif, formats
from jaxtrain.data.decode_limits import UnreadableError
from jaxtrain.data.exif import ORIENTATION

# TIFF tags: width and height of a tile.
TILE_SIDES = (322, 323)


class ImageHeader(NamedTuple):
    """Header of an image file.

    Attributes:
      format: Pillow's name of the format.
      size: Width and height of the image as stored, in pixels.
      mode: Pillow's mode of the pixels.
      progressive: Whether the file is a progressive JPEG.
      orientation: EXIF orientation; 1 is upright.
    """

    format: str
    size: tuple[int, int]
    mode: str
    progressive: bool
    orientation: int


def read_header(file: BinaryIO, start: bytes, max_pixels: int) -> ImageHeader:
    formats.keep_quiet()
    file.seek(0)
    try:
        with Image.open(file, formats=formats.candidates(start)) as image:
            size, mode = image.size, image.mode
            # Multi-picture files (MPO), which phones write, are JPEGs, too.
            kind = "JPEG" if image.format == "MPO" else str(image.format)
            progressive = kind == "JPEG" and "progressive" in image.info
            tags = getattr(image, "tag_v2", {})
            orientation = tags.get(ORIENTATION) or exif.orientation(image)
            # Pillow reports a TIFF's upright size only if its orientation tag is set.
            if tags and ORIENTATION not in tags and orientation in (5, 6, 7, 8):
                size = size[1], size[0]
            # Tiles are decoded completely, even if they are larger than the image.
            tile = [int(tags.get(tag, 0)) for tag in TILE_SIDES]
    except Image.UnidentifiedImageError:
        if bands := depth.unknown_bands(file):
            raise UnreadableError(bands) from None
        known = formats.remedy(start) or ", ".join(formats.readable_formats())
        raise UnreadableError(f"not an image of a supported format ({known})") from None
    except Exception as error:
        raise UnreadableError(reason_of(error)) from error
    decode_limits.check_pixels(size, max_pixels)
    decode_limits.check_pixels(tile, max_pixels)
    return ImageHeader(kind, size, mode, progressive, orientation)


def reason_of(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text or type(error).__name__
