"""Image orientation from EXIF or XMP metadata, even if stored after the pixels."""

import contextlib
import io
from typing import BinaryIO

from PIL import Image

# EXIF tag of the orientation.
ORIENTATION = 0x0112
# PNG: signature; sizes in bytes of an empty chunk and of the first chunk; prefixes of
# text chunks with metadata.
PNG_START, PNG_CHUNK, PNG_HEADER = b"\x89PNG\r\n\x1a\n", 12, 25
PNG_TEXTS = (b"Raw profile type exif\0", b"XML:com.adobe.xmp\0")


def orientation(image: Image.Image) -> int:
    """Return the EXIF orientation of an open image, by default 1 (upright).

    Damaged EXIF data is ignored, because the pixels may be intact.
    """
    with contextlib.suppress(Exception):
        # PngImageFile.getexif would decode the pixels if the header has no EXIF data.
        return Image.Image.getexif(image).get(ORIENTATION, 1)
    return 1


def metadata_first(data: bytes) -> BinaryIO:
    """Return a file object of `data`, with a PNG's metadata moved before the pixels.

    Pillow's header parser stops at the pixels, and would miss the metadata after them.
    """
    if not data.startswith(PNG_START):
        return io.BytesIO(data)
    moved, place, after_pixels = b"", len(PNG_START), False
    while place + PNG_CHUNK <= len(data):
        size = int.from_bytes(data[place : place + 4]) + PNG_CHUNK
        kind = data[place + 4 : place + 8]
        after_pixels |= kind == b"IDAT"
        has_orientation = kind == b"eXIf" or data.startswith(PNG_TEXTS, place + 8)
        if (
            after_pixels
            and kind in (b"eXIf", b"iTXt", b"tEXt", b"zTXt")
            and has_orientation
        ):
            moved += data[place : place + size]
        place += size
    after = len(PNG_START) + PNG_HEADER
    return io.BytesIO(data[:after] + moved + data[after:] if moved else data)
