"""Orientation of an image by its EXIF data or XMP, wherever a format has these."""

import contextlib
import io
from typing import BinaryIO

from PIL import Image

# Tag of the orientation.
ORIENTATION = 0x0112
# How a PNG begins; bytes of a chunk beside its data, and of its first chunk; beginnings
# of the texts that tell of the image.
PNG_START, PNG_CHUNK, PNG_HEADER = b"\x89PNG\r\n\x1a\n", 12, 25
PNG_TEXTS = (b"Raw profile type exif\0", b"XML:com.adobe.xmp\0")


def orientation(image: Image.Image) -> int:
    """Return the orientation of an open image by its EXIF data or XMP, 1 if none says.

    Damaged EXIF data says none: the pixels may be good.
    """
    with contextlib.suppress(Exception):
        # The method of a PNG decodes the image where its header has none.
        return Image.Image.getexif(image).get(ORIENTATION, 1)
    return 1


def metadata_first(data: bytes) -> BinaryIO:
    """Return a file of an image; of a PNG what tells its orientation comes first.

    It may follow the pixels, where reading the header would not meet it.
    """
    if not data.startswith(PNG_START):
        return io.BytesIO(data)
    late, place, seen = b"", len(PNG_START), False
    while place + PNG_CHUNK <= len(data):
        size = int.from_bytes(data[place : place + 4]) + PNG_CHUNK
        kind = data[place + 4 : place + 8]
        seen |= kind == b"IDAT"
        tells = kind == b"eXIf" or data.startswith(PNG_TEXTS, place + 8)
        if seen and kind in (b"eXIf", b"iTXt", b"tEXt", b"zTXt") and tells:
            late += data[place : place + size]
        place += size
    after = len(PNG_START) + PNG_HEADER
    return io.BytesIO(data[:after] + late + data[after:] if late else data)
