"""Image files that are not what they say."""

import struct
import zlib


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
