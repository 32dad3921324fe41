"""Images of 16 bits, and of more bands than colours."""

import struct
import zlib

import numpy as np

from tests.helpers.bad_images import chunk


def png(values: np.ndarray) -> bytes:
    """Return uint16 (H, W, C) as a PNG of 16 bits."""
    height, width, channels = values.shape
    kind = {1: 0, 3: 2, 4: 6}[channels]
    header = struct.pack(">IIBBBBB", width, height, 16, kind, 0, 0, 0)
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)
    parts = (b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts)


def tiff(values: np.ndarray, photometric: int) -> bytes:
    """Return uint8 or uint16 (H, W, C) as a TIFF, whose further bands mean nothing."""
    height, width, num = values.shape
    bits, colours = 8 * values.itemsize, 3 if photometric == 2 else 1
    arrays, tags = b"", []
    start = 8 + values.nbytes

    def add(tag: int, *numbers: int) -> None:
        nonlocal arrays
        data = struct.pack(f"<{len(numbers)}H", *numbers)
        if len(data) > 4:
            place, arrays = start + len(arrays), arrays + data + b"\0" * (len(data) % 4)
            data = struct.pack("<I", place)
        tags.append(struct.pack("<HHI4s", tag, 3, len(numbers), data.ljust(4, b"\0")))

    for tag, number in ((256, width), (257, height)):
        add(tag, number)
    add(258, *[bits] * num)
    add(259, 1)
    add(262, photometric)
    add(273, 8)
    add(277, num)
    add(278, height)
    add(279, values.nbytes)
    if num > colours:
        add(338, *[0] * (num - colours))
    directory = struct.pack("<H", len(tags)) + b"".join(tags) + bytes(4)
    place = start + len(arrays)
    return b"II*\0" + struct.pack("<I", place) + values.tobytes() + arrays + directory
