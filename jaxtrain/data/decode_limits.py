"""Images that would take long or much memory to decode, found without a decoder."""

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import BinaryIO, Literal

# JPEG: a decoder visits every block of the image in each scan, however few bytes the
# scan has: 600 KB can ask for 2,600 passes over 64 million pixels, which take minutes.
# Encoders write 1 to 12 scans. libtiff has the same limit for JPEG inside of TIFF.
MAX_SCANS = 100
# Scans of the largest image that is allowed; smaller ones may have more, up to
# MAX_SCANS. 16 scans of 64 million pixels decode in about a second.
MAX_SCANS_OF_LARGEST = 16

# Parts of EXIF data: Pillow joins them one by one, which takes 106 s for 16 MB in parts
# of 100 bytes. Cameras write one, and an image with others beside it has some. In a
# smaller file they take no time.
EXIF, MAX_EXIF_PARTS, MIN_EXIF_BYTES = b"Exif\0\0", 100, 2**18

# Bytes of a pixel at most, of four channels of 32 bits, and of all else in a file.
BYTES_A_PIXEL, METADATA_BYTES = 16, 2**26

# Strips, or tiles, of a TIFF: 64 million pixels in tiles of 16x16 have as many.
MAX_STRIPS = 2**18
# Place in a file beyond which nothing lies: more cannot be sought.
MAX_OFFSET = 2**40
# Tags of TIFF: offsets and byte counts of strips, and of tiles.
STRIP_TAGS = (273, 279, 324, 325)
# The first bytes of a TIFF -> the byte order, and whether it is a BigTIFF.
TIFF: Mapping[bytes, tuple[Literal["little", "big"], bool]] = {
    b"II*\0": ("little", False),
    b"MM\0*": ("big", False),
    b"II+\0": ("little", True),
    b"MM\0+": ("big", True),
}

START_OF_IMAGE = b"\xff\xd8"
START_OF_SCAN, END_OF_IMAGE = 0xDA, 0xD9
# Markers without a length: TEM and SOI. Restart markers are a part of the pixels.
ALONE = (0x01, 0xD8)
MARKER = re.compile(rb"\xff([^\x00\xd0-\xd7\xff])")


class UnreadableError(Exception):
    """Why a file cannot be used as an image."""


def check_pixels(size: Sequence[int], max_pixels: int) -> None:
    """Raise UnreadableError if a width and a height are too large."""
    width, height = size
    if width * height > max_pixels:
        raise UnreadableError(
            f"{width}x{height} are more pixels than data.max_pixels = {max_pixels}"
        )


def check_header(data: bytes, max_pixels: int) -> None:
    """Raise UnreadableError if opening an image takes too long or too much memory."""
    check_pixels(webp_canvas(data) or (0, 0), max_pixels)
    check_strips(io.BytesIO(data))
    if len(data) < MIN_EXIF_BYTES or not data.startswith(START_OF_IMAGE):
        return
    num_parts = data.count(EXIF)
    if num_parts > MAX_EXIF_PARTS:
        raise UnreadableError(
            f"it has {num_parts} parts of EXIF data, and may have {MAX_EXIF_PARTS}: "
            "save it anew"
        )


def check_strips(file: BinaryIO) -> None:
    """Raise UnreadableError if the first image of a TIFF has too many strips.

    Pillow makes objects of all: of 8 bytes of the file about 70 of memory. The place in
    the file is where it was.
    """
    before = file.tell()
    try:
        file.seek(0)
        most = max(_offset_counts(file), default=0)
    finally:
        file.seek(before)
    if most > MAX_STRIPS:
        raise UnreadableError(
            f"it has {most} strips or tiles, and may have {MAX_STRIPS}: save it anew"
        )


def check_size(num_bytes: int, size: Sequence[int]) -> None:
    """Raise UnreadableError if a file is larger than its width and height explain."""
    width, height = size
    most = METADATA_BYTES + BYTES_A_PIXEL * width * height
    if num_bytes > most:
        raise UnreadableError(
            f"its {num_bytes} bytes are more than an image of {width}x{height} pixels "
            f"may have, {most}: save the first image, or what it is, alone"
        )


def check_scans(data: bytes, width: int, height: int, max_pixels: int) -> None:
    """Raise UnreadableError if the scans of a JPEG take too long."""
    limit = min(MAX_SCANS, MAX_SCANS_OF_LARGEST * max_pixels // max(1, width * height))
    # Counting bytes is fast (0.3 ms for 150 KB), and finds all scans and more.
    if data.count(bytes([0xFF, START_OF_SCAN])) <= limit:
        return
    num_scans = _count_scans(data)
    if num_scans > limit:
        raise UnreadableError(
            f"it has {num_scans} scans, which take long to decode: a JPEG of "
            f"{width}x{height} pixels may have {limit}; save it anew"
        )


def webp_canvas(data: bytes) -> tuple[int, int] | None:
    """Return the width and height that a WebP claims; None: it is none (RFC 9649).

    The decoder keeps two canvases of this size from the start: 2 GB for the largest,
    which a file of 30 bytes may claim.
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
    """Yield the numbers of strips or tiles that the first image of a TIFF says."""
    known = TIFF.get(file.read(4))
    if known is None:
        return
    order, is_big = known

    def number(data: bytes) -> int:
        return int.from_bytes(data, order)

    # Sizes of an offset, of the number of entries, and of an entry.
    offset, counted, entry = (8, 8, 20) if is_big else (4, 2, 12)
    file.seek(8 if is_big else 4)
    place = number(file.read(offset))
    if place > MAX_OFFSET:
        return
    file.seek(place)
    # A tag has 16 bits: more entries would be some twice.
    for _ in range(min(number(file.read(counted)), 2**16)):
        data = file.read(entry)
        if number(data[:2]) in STRIP_TAGS:
            yield number(data[4 : 4 + offset])


def _count_scans(data: bytes) -> int:
    """Count the scans of a JPEG up to its end, but not those of a thumbnail in it."""
    position = num_scans = 0
    while (found := MARKER.search(data, position)) is not None:
        marker, position = found[1][0], found.end()
        if marker == END_OF_IMAGE:
            break
        if marker in ALONE:
            continue
        num_scans += marker == START_OF_SCAN
        position += int.from_bytes(data[position : position + 2], "big")
    return num_scans
