"""JPEGs that would take long to decode, found without decoding them.

A decoder visits every block of the image in each scan, however few bytes the scan has:
600 KB can ask for 2,600 passes over 64 million pixels, which take minutes.
"""

import re

# Encoders write 1 to 12 scans. libtiff has the same limit for JPEG inside of TIFF.
MAX_SCANS = 100
# Scans of the largest image that is allowed; smaller ones may have more, up to
# MAX_SCANS. 16 scans of 64 million pixels decode in about a second.
MAX_SCANS_OF_LARGEST = 16

# Parts of EXIF data: Pillow joins them one by one, which takes 106 s for 16 MB in parts
# of 100 bytes. Cameras write one, and an image with others beside it has some. In a
# smaller file they take no time.
EXIF, MAX_EXIF_PARTS, MIN_EXIF_BYTES = b"Exif\0\0", 100, 2**18

START_OF_IMAGE = b"\xff\xd8"
START_OF_SCAN, END_OF_IMAGE = 0xDA, 0xD9
# Markers without a length: TEM and SOI. Restart markers are a part of the pixels.
ALONE = (0x01, 0xD8)
MARKER = re.compile(rb"\xff([^\x00\xd0-\xd7\xff])")


def max_scans(num_pixels: int, max_pixels: int) -> int:
    """Return how many scans a JPEG of `num_pixels` may have.

    Args:
      num_pixels: Pixels of the image, at most `max_pixels`.
      max_pixels: Pixels of the largest image that is allowed.
    """
    return min(MAX_SCANS, MAX_SCANS_OF_LARGEST * max_pixels // max(1, num_pixels))


def count_scans(data: bytes) -> int:
    """Count the scans of a JPEG up to its end marker.

    Scans inside of metadata, such as those of a thumbnail, do not count.

    Args:
      data: The file, which may be damaged.
    """
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


def slow_scans(data: bytes, width: int, height: int, max_pixels: int) -> str | None:
    """Return why the scans of a JPEG take too long; None if they do not."""
    limit = max_scans(width * height, max_pixels)
    # Counting bytes is fast (0.3 ms for 150 KB), and finds all scans and more.
    if data.count(bytes([0xFF, START_OF_SCAN])) <= limit:
        return None
    num_scans = count_scans(data)
    if num_scans <= limit:
        return None
    return (
        f"it has {num_scans} scans, which take long to decode: a JPEG of "
        f"{width}x{height} pixels may have {limit}; save it anew"
    )


def slow_metadata(data: bytes) -> str | None:
    """Return why the metadata of a JPEG takes too long; None if it does not."""
    if len(data) < MIN_EXIF_BYTES or not data.startswith(START_OF_IMAGE):
        return None
    num_parts = data.count(EXIF)
    if num_parts <= MAX_EXIF_PARTS:
        return None
    return (
        f"it has {num_parts} parts of EXIF data, and may have {MAX_EXIF_PARTS}: "
        "save it anew"
    )
