"""Limits on decoding time and memory, checked without decoding."""

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import BinaryIO, Literal

# Maximum number of scans of a JPEG. A decoder visits all pixels in each scan, even if a
# scan has only a few bytes: a file of 600 KB can cause 2,600 passes over 64 million
# pixels, which take minutes. Encoders write 1 to 12 scans. libtiff has the same limit.
MAX_SCANS = 100
# Maximum number of scans of the largest allowed image. Smaller images may have more, up
# to MAX_SCANS. 16 scans of 64 million pixels decode in about a second.
MAX_SCANS_OF_LARGEST = 16

# Maximum number of EXIF segments: Pillow joins them one by one, which takes 106 s for
# 16 MB in segments of 100 bytes. Cameras write one segment, and a file with embedded
# images has a few. Files below MIN_EXIF_BYTES are fast in any case.
EXIF, MAX_EXIF_PARTS, MIN_EXIF_BYTES = b"Exif\0\0", 100, 2**18

# Maximum file size in bytes: bytes per pixel (four 32-bit channels), plus metadata.
BYTES_A_PIXEL, METADATA_BYTES = 16, 2**26

# Maximum number of strips or tiles of a TIFF: 64 million pixels in 16x16 tiles.
MAX_STRIPS = 2**18
# Maximum offset of the first directory of a TIFF, in bytes.
MAX_OFFSET = 2**40
# TIFF tags: offsets and byte counts of strips, and of tiles.
STRIP_TAGS = (273, 279, 324, 325)
# Magic bytes of TIFF -> (byte order, whether the file is a BigTIFF).
TIFF: Mapping[bytes, tuple[Literal["little", "big"], bool]] = {
    b"II*\0": ("little", False),
    b"MM\0*": ("big", False),
    b"II+\0": ("little", True),
    b"MM\0+": ("big", True),
}

START_OF_IMAGE = b"\xff\xd8"
START_OF_SCAN, END_OF_IMAGE = 0xDA, 0xD9
# JPEG markers without a length field: TEM and SOI. `MARKER` excludes restart markers.
ALONE = (0x01, 0xD8)
MARKER = re.compile(rb"\xff([^\x00\xd0-\xd7\xff])")


class UnreadableError(Exception):
    """A file cannot be used as an image; the message is the reason."""


def check_pixels(size: Sequence[int], max_pixels: int) -> None:
    """Raise UnreadableError if (width, height) exceeds the maximum number of pixels."""
    width, height = size
    if width * height > max_pixels:
        raise UnreadableError(
            f"{width}x{height} pixels are more than data.max_pixels = {max_pixels}: "
            "increase data.max_pixels, or save a smaller image"
        )


def check_header(data: bytes, max_pixels: int) -> None:
    """Raise UnreadableError for an image that takes too much time or memory to open."""
    check_pixels(webp_canvas(data) or (0, 0), max_pixels)
    check_strips(io.BytesIO(data))
    if len(data) < MIN_EXIF_BYTES or not data.startswith(START_OF_IMAGE):
        return
    num_parts = data.count(EXIF)
    if num_parts > MAX_EXIF_PARTS:
        raise UnreadableError(
            f"the image has {num_parts} segments of EXIF data, more than the limit of "
            f"{MAX_EXIF_PARTS}: save the image again"
        )


def check_strips(file: BinaryIO) -> None:
    """Raise UnreadableError if the first image of a TIFF has too many strips or tiles.

    Pillow creates an object for each strip: 70 bytes of memory for 8 bytes of the file.
    The file position is restored.
    """
    before = file.tell()
    try:
        file.seek(0)
        most = max(_offset_counts(file), default=0)
    finally:
        file.seek(before)
    if most > MAX_STRIPS:
        raise UnreadableError(
            f"the image has {most} strips or tiles, more than the limit of "
            f"{MAX_STRIPS}: save the image again"
        )


def check_size(num_bytes: int, size: Sequence[int]) -> None:
    """Raise UnreadableError if a file is too large for its width and height."""
    width, height = size
    most = METADATA_BYTES + BYTES_A_PIXEL * width * height
    if num_bytes > most:
        raise UnreadableError(
            f"the file has {num_bytes} bytes, more than the limit of {most} for "
            f"{width}x{height} pixels: save only the first image"
        )


def check_scans(data: bytes, width: int, height: int, max_pixels: int) -> None:
    """Raise UnreadableError if a JPEG has too many scans for its number of pixels."""
    limit = min(MAX_SCANS, MAX_SCANS_OF_LARGEST * max_pixels // max(1, width * height))
    # Counting marker bytes gives an upper bound, and is fast (0.3 ms for 150 KB).
    if data.count(bytes([0xFF, START_OF_SCAN])) <= limit:
        return
    num_scans = _count_scans(data)
    if num_scans > limit:
        raise UnreadableError(
            f"the file has {num_scans} scans, more than the limit of {limit} for a "
            f"JPEG of {width}x{height} pixels: save the image again"
        )


def webp_canvas(data: bytes) -> tuple[int, int] | None:
    """Return (width, height) of a WebP's canvas (RFC 9649), or None for other files.

    The decoder allocates two such canvases before it reads the pixels: up to 2 GB, even
    for a file of 30 bytes.
    """
    if len(data) < 30 or data[:4] != b"RIFF" or data[8:12] != b"WEBP":
        return None

    def number(start: int, stop: int) -> int:
        return int.from_bytes(data[start:stop], "little")

    match data[12:16]:
        case b"VP8X":
            return number(24, 27) + 1, number(27, 30) + 1
        case b"VP8L":
            bits = number(21, 25)
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8 ":
            return number(26, 28) & 0x3FFF, number(28, 30) & 0x3FFF
    return None


def _offset_counts(file: BinaryIO) -> Iterator[int]:
    """Yield the lengths of the `STRIP_TAGS` arrays of the first image of a TIFF."""
    known = TIFF.get(file.read(4))
    if known is None:
        return
    order, is_big = known

    def number(data: bytes) -> int:
        return int.from_bytes(data, order)

    # Sizes in bytes: file offset, number of directory entries, and directory entry.
    offset, counted, entry = (8, 8, 20) if is_big else (4, 2, 12)
    file.seek(8 if is_big else 4)
    place = number(file.read(offset))
    if place > MAX_OFFSET:
        return
    file.seek(place)
    # Tags have 16 bits, so more than 2**16 entries would include duplicates.
    for _ in range(min(number(file.read(counted)), 2**16)):
        data = file.read(entry)
        if number(data[:2]) in STRIP_TAGS:
            yield number(data[4 : 4 + offset])


def _count_scans(data: bytes) -> int:
    """Count the scans of a JPEG, excluding embedded thumbnails."""
    position = num_scans = 0
    while (match := MARKER.search(data, position)) is not None:
        marker, position = match[1][0], match.end()
        if marker == END_OF_IMAGE:
            break
        if marker in ALONE:
            continue
        num_scans += marker == START_OF_SCAN
        position += int.from_bytes(data[position : position + 2], "big")
    return num_scans
