"""The size that a WebP file claims, read before its decoder is made.

The decoder keeps two canvases of this size from the start: 2 GB for the largest, which
a file of 30 bytes may claim. The layout is that of RFC 9649.
"""


def canvas(data: bytes) -> tuple[int, int] | None:
    """Return width and height in pixels; None means that the file is no WebP."""
    if len(data) < 30 or data[:4] != b"RIFF" or data[8:12] != b"WEBP":
        return None
    chunk = data[12:16]
    if chunk == b"VP8X":
        return _number(data[24:27]) + 1, _number(data[27:30]) + 1
    if chunk == b"VP8L":
        bits = _number(data[21:25])
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if chunk == b"VP8 ":
        return _number(data[26:28]) & 0x3FFF, _number(data[28:30]) & 0x3FFF
    return None


def _number(data: bytes) -> int:
    return int.from_bytes(data, "little")
