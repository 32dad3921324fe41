"""Large image files: refused by their headers, before they are read whole."""

import io
import os
import resource
import struct
from pathlib import Path

import numpy as np
import pytest

from jaxtrain.data import decode_limits, files, read_files
from jaxtrain.data.files import UnreadableError, open_file
from jaxtrain.data.read_files import LargeFile, read_unless_large
from tests.helpers.bad_images import png
from tests.helpers.images import encode
from tests.helpers.rows import each_row

MAX_PIXELS = 2**20


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def of_strips(num: int, big: bool = False) -> bytes:
    """Return a TIFF of 8x8 grey pixels whose header says so many strips."""
    tags = [(256, 8), (257, 8), (258, 8), (259, 1), (262, 1), (273, 8), (279, 64)]
    head, entry = b"II*\0" + struct.pack("<IH", 8, len(tags)), "<HHII"
    if big:
        head, entry = b"II+\0" + struct.pack("<HHQQ", 8, 0, 16, len(tags)), "<HHQQ"
    return head + b"".join(
        struct.pack(entry, tag, 4, num if tag in (273, 279) else 1, value)
        for tag, value in tags
    )


def starting(kind: str) -> bytes:
    """Return how a hostile image file begins that goes on with zeros."""
    small = np.zeros((8, 8), np.uint8)
    if kind in ("PNG", "JPEG", "GIF", "BMP", "WEBP", "TIFF"):
        return encode(small, kind)
    head = encode(small)[:33]
    if kind == "text":
        return head + struct.pack(">I4s", 2**30 - 100, b"tEXt") + b"Title\0"
    if kind == "strips":
        return of_strips(2**27)
    if kind == "pixels":
        return png(60_000, 60_000)
    if kind == "container":
        return struct.pack(">I", 24) + b"ftypavif\0\0\0\0avifmif1"
    return b""


LARGE = {
    **dict.fromkeys(("PNG", "JPEG", "GIF", "BMP", "WEBP", "TIFF"), "for 8x8 pixels"),
    "text": "the header is too large",
    "strips": "134217728 strips or tiles, more than the limit of 262144",
    "pixels": "60000x60000 pixels are more",
    "container": "the header is too large|not an image of a supported format",
    "zeros": "not an image of a supported format",
}


@each_row("kind", LARGE)
def test_a_gigabyte_is_refused_before_it_is_read(kind: str, tmp_path: Path):
    path = tmp_path / "large"
    path.write_bytes(starting(kind))
    os.truncate(path, 2**30)
    before = peak_bytes()
    data = read_unless_large(os.fsencode(path))
    with pytest.raises(UnreadableError, match=LARGE[kind]) as caught:
        open_file(data, MAX_PIXELS)
    assert len(str(caught.value)) < 200
    # What Pillow reads of a header at most.
    assert peak_bytes() - before < 2**28
    os.truncate(path, 2**30 + 1)
    with pytest.raises(UnreadableError, match="more than the limit"):
        open_file(read_unless_large(os.fsencode(path)), MAX_PIXELS)


def test_a_large_file_is_read_as_others_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    pixels = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    for module in (files, read_files):
        monkeypatch.setattr(module, "LARGE_BYTES", 2**11)
    for format in ("BMP", "PNG", "TIFF", "WEBP"):
        path = tmp_path / f"large.{format.lower()}"
        path.write_bytes(encode(pixels, format))
        data = read_unless_large(os.fsencode(path))
        assert isinstance(data, LargeFile)
        expected = open_file(path.read_bytes(), MAX_PIXELS).decode(3)
        np.testing.assert_array_equal(open_file(data, MAX_PIXELS).decode(3), expected)


def test_strips_of_a_tiff_are_counted():
    for big in (False, True):
        with pytest.raises(UnreadableError, match="has 262145 strips or tiles"):
            open_file(of_strips(2**18 + 1, big), MAX_PIXELS)
        file = io.BytesIO(of_strips(2**18, big))
        file.seek(3)
        decode_limits.check_strips(file)
        assert file.tell() == 3
    # An offset of the tags beyond the end of the file.
    decode_limits.check_strips(io.BytesIO(b"II*\0\xff\xff\xff\xff"))
