"""Image files that are not what they say."""

import io
import re
import struct
import zlib

from PIL import Image


def half(data: bytes) -> bytes:
    return data[: len(data) // 2]


def chunk(kind: bytes, data: bytes) -> bytes:
    checksum = struct.pack(">I", zlib.crc32(kind + data))
    return struct.pack(">I", len(data)) + kind + data + checksum


def png(width: int, height: int, data: bytes = b"") -> bytes:
    """Return a grey PNG of any size that holds so much of its pixels."""
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    parts = (b"IHDR", header), (b"IDAT", zlib.compress(data)), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts)


def jpeg_of_many_scans(width: int, height: int, num_scans: int) -> bytes:
    """Return a grey progressive JPEG with a scan of few bytes again and again."""
    buffer = io.BytesIO()
    Image.new("L", (width, height), 128).save(buffer, "JPEG", progressive=True)
    data = buffer.getvalue()
    starts = [found.start() for found in re.finditer(b"\xff\xda", data)]
    last = data[starts[-1] : -2]
    return data[:-2] + last * (num_scans - len(starts)) + data[-2:]
