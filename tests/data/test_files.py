"""Image files: every format and mode, orientation, parts of a JPEG's size, limits."""

import io
import re
import resource
import struct
import zlib
from typing import Any

import numpy as np
import pytest
import simplejpeg
from PIL import Image

from jaxtrain.data import formats
from jaxtrain.data.files import UnreadableError, open_file
from jaxtrain.data.formats import describe_counts as describe
from tests.helpers.bad_images import chunk, jpeg_of_many_scans, png
from tests.helpers.rows import each_row

MAX_PIXELS = 2**20
# 12 rows, 10 columns; the last of 4 channels is alpha.
PIXELS = np.random.default_rng(0).integers(0, 256, (12, 10, 4), np.uint8)
COLOUR, GREY = PIXELS[..., :3].copy(), PIXELS[..., 0].copy()
LUMINANCE = np.array([19595, 38470, 7471])


def encode(image: Image.Image, format: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format, **options)
    return buffer.getvalue()


def decode(data: bytes, channels: int, **options: Any) -> np.ndarray:
    return open_file(data, MAX_PIXELS).decode(channels, **options)


def smooth(height: int, width: int) -> np.ndarray:
    """Return a colour image without details, which all ways of resizing agree on."""
    rows, columns = np.mgrid[:height, :width]
    waves = (np.sin(rows / height * 3), np.cos(columns / width * 2), rows / height)
    return (127 + 100 * np.stack(waves, axis=-1)).astype(np.uint8)


# --- formats and modes ---------------------------------------------------------------


def over_white(colour: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    part = alpha[..., None] / 255
    return colour * part + 255 * (1 - part)


def luminance(colour: np.ndarray) -> np.ndarray:
    return np.round(colour @ LUMINANCE / 2**16)


# Mode -> an image in it, and the colours (H, W, 3) that it shows.
INDEX = PIXELS[..., 0] % 7
PALETTE = np.arange(21, dtype=np.uint8).reshape(7, 3) * 12
IN_PALETTE = Image.frombytes("P", (10, 12), INDEX.tobytes())
IN_PALETTE.putpalette(PALETTE.tobytes())
DEEP = np.arange(120, dtype=np.uint16).reshape(12, 10) * 540
MODES: dict[str, tuple[Image.Image, np.ndarray]] = {
    "L": (Image.fromarray(GREY), np.repeat(GREY[..., None], 3, -1)),
    "RGB": (Image.fromarray(COLOUR), COLOUR),
    "RGBA": (Image.fromarray(PIXELS), over_white(COLOUR, PIXELS[..., 3])),
    "LA": (
        Image.fromarray(PIXELS[..., [0, 3]].copy(), "LA"),
        over_white(np.repeat(GREY[..., None], 3, -1), PIXELS[..., 3]),
    ),
    "P": (IN_PALETTE, PALETTE[INDEX]),
    "1": (
        Image.fromarray(GREY > 99),
        np.repeat((255 * (GREY > 99))[..., None], 3, -1),
    ),
    "I;16": (Image.fromarray(DEEP), np.repeat((DEEP >> 8)[..., None], 3, -1)),
    "CMYK": (Image.fromarray(255 - PIXELS, "CMYK"), np.zeros(0)),
}
SAVED = [
    *(("PNG", mode, {}) for mode in ("L", "RGB", "RGBA", "LA", "P", "1", "I;16")),
    *(("BMP", mode, {}) for mode in ("L", "RGB", "P", "1")),
    *(("GIF", mode, {}) for mode in ("L", "P", "1")),
    *(("WEBP", mode, {"lossless": True}) for mode in ("L", "RGB")),
    # Else WebP changes the colours of what cannot be seen.
    ("WEBP", "RGBA", {"lossless": True, "exact": True}),
    *(("TIFF", m, {}) for m in ("L", "RGB", "RGBA", "LA", "P", "1", "I;16")),
    *(
        ("TIFF", "RGB", {"compression": name})
        for name in ("tiff_lzw", "tiff_adobe_deflate", "packbits")
    ),
    ("TIFF", "1", {"compression": "group4"}),
]


@each_row(("format", "mode", "options"), SAVED)
def test_what_loses_nothing(format: str, mode: str, options: dict[str, Any]):
    image, colours = MODES[mode]
    data = encode(image, format, **options)
    file = open_file(data, MAX_PIXELS)
    assert (file.format, file.height, file.width) == (format, 12, 10)
    shown = file.decode(3)
    assert shown.dtype == np.uint8 and shown.shape == (12, 10, 3)
    # Blending rounds.
    assert np.abs(shown - colours).max() <= (mode in ("RGBA", "LA"))
    grey = file.decode(1)
    assert grey.shape == (12, 10, 1)
    assert np.abs(grey[..., 0] - luminance(colours)).max() <= 1
    if mode == "RGBA":
        assert (file.decode(4) == PIXELS).all()
    assert file.decode(4).shape == (12, 10, 4)


@each_row("mode", ["L", "RGB", "CMYK"])
@each_row("options", [{}, {"progressive": True}, {"subsampling": 0}])
def test_jpeg_is_what_pillow_decodes(mode: str, options: dict[str, Any]):
    """Two builds of libjpeg: they may round, and smooth colours, otherwise."""
    whole = Image.fromarray(smooth(40, 56)).convert(mode)
    data = encode(whole, "JPEG", quality=95, **options)
    for channels, name in ((1, "L"), (3, "RGB"), (4, "RGBA")):
        reference = np.asarray(Image.open(io.BytesIO(data)).convert(name))
        found = decode(data, channels)
        assert found.shape == (40, 56, channels)
        reference = reference.reshape(found.shape).astype(int)
        assert np.abs(found - reference).max() <= 4


def test_transparent_colours_of_a_palette_show_white():
    IN_PALETTE.info.pop("transparency", None)
    for format in ("PNG", "GIF"):
        shown = decode(encode(IN_PALETTE, format, transparency=3), 3)
        assert (shown[INDEX == 3] == 255).all()
        assert (shown[INDEX != 3] == PALETTE[INDEX][INDEX != 3]).all()


def test_a_colour_that_is_transparent_shows_white():
    image = Image.fromarray(COLOUR)
    shown = decode(encode(image, "PNG", transparency=tuple(map(int, COLOUR[2, 3]))), 3)
    assert (shown[2, 3] == 255).all() and (shown[0] == COLOUR[0]).all()


def test_pixels_of_32_bits_are_told():
    for image in (np.zeros((4, 4), np.int32), np.zeros((4, 4), np.float32)):
        data = encode(Image.fromarray(image), "TIFF")
        with pytest.raises(UnreadableError, match="pixels have 32 bits"):
            decode(data, 1)


@each_row("format", ["GIF", "WEBP", "PNG", "TIFF"])
def test_of_several_frames_the_first(format: str):
    frames = [Image.new("RGB", (6, 5), colour) for colour in ("red", "green", "blue")]
    options = {} if format == "TIFF" else {"duration": 100}
    options |= {"lossless": True} if format == "WEBP" else {}
    data = encode(frames[0], format, save_all=True, append_images=frames[1:], **options)
    assert Image.open(io.BytesIO(data)).n_frames == 3  # type: ignore[attr-defined]
    assert (decode(data, 3) == [255, 0, 0]).all()


def test_a_photograph_with_others_beside_it():
    first, other = Image.fromarray(smooth(16, 24)), Image.new("RGB", (8, 8), "blue")
    data = encode(first, "MPO", save_all=True, append_images=[other])
    assert Image.open(io.BytesIO(data)).format == "MPO"
    file = open_file(data, MAX_PIXELS)
    assert (file.format, file.height, file.width) == ("JPEG", 16, 24)
    alone = decode(encode(first, "JPEG"), 3)
    assert (file.decode(3) == alone).all()


# --- orientation ---------------------------------------------------------------------


# --- formats in a container ----------------------------------------------------------


def contained(format: str, height: int = 24, width: int = 40, **options: Any) -> bytes:
    assert formats.is_read(format), "the test environment has both"
    return encode(Image.fromarray(smooth(height, width)), format, quality=95, **options)


@pytest.mark.parametrize("format", ["HEIF", "AVIF"])
def test_heic_and_avif_are_read(format: str):
    data = contained(format)
    file = open_file(data, MAX_PIXELS)
    assert (file.format, file.height, file.width) == (format, 24, 40)
    found = file.decode(3).astype(int)
    assert np.abs(found - smooth(24, 40)).mean() < 3
    with pytest.raises(UnreadableError, match="40x24 pixels are more than data"):
        open_file(data, 24 * 40 - 1)
    with pytest.raises(UnreadableError):
        open_file(data[: len(data) // 2], MAX_PIXELS).decode(3)


@pytest.mark.parametrize(
    ("format", "told"),
    [
        ("HEIF", r"pip install -e .*\[heic\]'"),
        ("AVIF", "needs Pillow with AVIF support"),
    ],
)
def test_a_format_that_is_not_read_here_says_what_reads_it(
    format: str, told: str, monkeypatch: pytest.MonkeyPatch
):
    data = contained(format)
    monkeypatch.setattr(formats, "is_read", lambda name: name != format)
    with pytest.raises(UnreadableError, match=told):
        open_file(data, MAX_PIXELS)
    ending = {"HEIF": ".heic", "AVIF": ".avif"}[format]
    assert not formats.is_image(f"a{ending.upper()}".encode())
    counts = formats.count_endings([b"1" + ending.encode(), b"2.TXT", b"3.txt"])
    assert re.fullmatch(rf"2 \.txt, 1 \{ending} \(.*{told}.*\)", describe(counts))
    assert formats.count_images(counts) == 1


# --- parts of a JPEG's size ----------------------------------------------------------


@pytest.fixture
def factors(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The parts of its size that each JPEG is decoded at."""
    found: list[int] = []
    whole = simplejpeg.decode_jpeg

    def decode_jpeg(*args: Any, **options: Any) -> np.ndarray:
        found.append(options.get("min_factor", 1))
        return whole(*args, **options)

    monkeypatch.setattr(simplejpeg, "decode_jpeg", decode_jpeg)
    return found


@each_row(
    ("least", "factor"),
    [
        (None, 1),
        ((81, 100), 1),
        ((80, 120), 2),
        ((40, 60), 4),
        ((1, 1), 8),
    ],
)
@each_row("orientation", [1, 6])
def test_a_jpeg_is_decoded_at_a_part_that_has_enough_pixels(
    least: Any, factor: int, orientation: int, factors: list[int]
):
    factors.clear()
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encode(Image.fromarray(smooth(160, 240)), "JPEG", exif=exif)
    turned = orientation == 6
    found = decode(data, 3, least=least[::-1] if turned and least else least)
    assert factors == [factor]
    shape = (160 // factor, 240 // factor)
    assert found.shape == (*(shape[::-1] if turned else shape), 3)


# --- limits and damage ---------------------------------------------------------------


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def with_size(format: str, width: int, height: int) -> bytes:
    """Return a small file whose header tells of another size."""
    if format == "PNG":
        return png(width, height)
    frames = {"append_images": [Image.new("L", (8, 8), 9)], "save_all": True}
    options = frames if format == "WEBP" else {}
    data = bytearray(encode(Image.new("L", (8, 8)), format, **options))
    place, order = {
        "JPEG": (data.find(b"\xff\xc0") + 5, ">HH"),
        "GIF": (6, "<HH"),
        "BMP": (18, "<II"),
        "WEBP": (data.find(b"VP8X") + 12, "webp"),
    }[format]
    if order == "webp":
        sides = [side.to_bytes(3, "little") for side in (width - 1, height - 1)]
        packed = b"".join(sides)
    else:
        sides = (height, width) if format == "JPEG" else (width, height)
        packed = struct.pack(order, *sides)
    data[place : place + len(packed)] = packed
    return bytes(data)


def tiled_tiff(side: int, tile: int, data: bytes) -> bytes:
    tags = [(256, side), (257, side), (258, 8), (259, 8), (262, 1), (277, 1)]
    tags += [(322, tile), (323, tile), (324, 0), (325, len(data))]
    start = 8 + 2 + 12 * len(tags) + 4
    found = b"II*\0" + struct.pack("<IH", 8, len(tags))
    for tag, value in tags:
        found += struct.pack("<HHII", tag, 4, 1, start if tag == 324 else value)
    return found + bytes(4) + data


@each_row("format", ["PNG", "JPEG", "GIF", "BMP", "WEBP"])
def test_too_many_pixels_are_refused_before_they_take_memory(format: str):
    data = with_size(format, 16_000, 16_001)
    before = peak_bytes()
    with pytest.raises(UnreadableError, match="16000x16001 pixels are more than"):
        open_file(data, MAX_PIXELS)
    assert peak_bytes() - before < 2**24


def test_a_tile_larger_than_its_image_is_refused():
    packer = zlib.compressobj()
    data = b"".join(packer.compress(bytes(2**20)) for _ in range(64)) + packer.flush()
    before = peak_bytes()
    with pytest.raises(UnreadableError, match="8000x8000 pixels are more"):
        open_file(tiled_tiff(8, 8000, data), MAX_PIXELS)
    assert peak_bytes() - before < 2**24
    assert decode(tiled_tiff(8, 16, zlib.compress(bytes(256))), 1).shape == (8, 8, 1)


# Of 200x100 pixels in a limit of 20,000 x `times`: scans, and whether they are taken.
SCANS = [(1, 16, True), (1, 17, False), (4, 64, True), (50, 100, True)]


@each_row(("times", "num_scans", "taken"), [*SCANS, (50, 101, False)])
def test_a_jpeg_of_too_many_scans_is_refused(times: int, num_scans: int, taken: bool):
    data = jpeg_of_many_scans(200, 100, num_scans)
    if taken:
        assert open_file(data, 20_000 * times).width == 200
        return
    told = f"the file has {num_scans} scans, more than the limit of "
    with pytest.raises(UnreadableError, match=told):
        open_file(data, 20_000 * times)


def test_scans_of_a_thumbnail_do_not_count():
    """Nor do those of what follows the image, as of a video beside it."""
    data = encode(Image.fromarray(smooth(40, 56)), "JPEG", progressive=True)
    scans = b"\xff\xda\x00\x02" * 200
    segment = b"\xff\xee" + struct.pack(">H", 2 + len(scans)) + scans
    file = open_file(data[:2] + segment + data[2:] + scans, MAX_PIXELS)
    assert (file.decode(3) == decode(data, 3)).all()


def test_a_jpeg_of_many_parts_of_exif_data_is_refused():
    data = encode(Image.fromarray(smooth(40, 56)), "JPEG") + bytes(2**18)
    part = b"\xff\xe1" + struct.pack(">H", 10) + b"Exif\0\0II"
    assert open_file(data[:2] + 100 * part + data[2:], MAX_PIXELS).width == 56
    with pytest.raises(UnreadableError, match="has 101 segments of EXIF data"):
        open_file(data[:2] + 101 * part + data[2:], MAX_PIXELS)


@pytest.mark.parametrize("kind", [b"zTXt", b"iCCP"])
def test_what_a_png_says_beside_its_pixels_takes_little_memory(kind: bytes):
    packed = zlib.compress(bytes(2**25))
    data = png(8, 8, bytes(72))
    data = data[:33] + chunk(kind, b"name\0\0" + packed) + data[33:]
    before = peak_bytes()
    with pytest.raises(UnreadableError, match="Decompressed data too large"):
        open_file(data, MAX_PIXELS)
    assert peak_bytes() - before < 2**24


def test_the_limit_is_the_config_s_alone():
    """Pillow's own is 179 million, and it warns from half of that on."""
    assert open_file(with_size("PNG", 20_000, 20_000), 2**30).width == 20_000


JPEG = encode(Image.fromarray(smooth(40, 56)), "JPEG")
TIFF = encode(Image.fromarray(smooth(40, 56)), "TIFF", compression="tiff_lzw")
BAD: dict[str, tuple[bytes | OSError, str]] = {
    "missing": (OSError(2, "No such file or directory"), "No such file or directory"),
    "most of a JPEG": (JPEG[:-20], "Premature end of JPEG file"),
    "a header": (JPEG[:200], "Truncated File Read"),
    "a lying PNG": (png(500, 500, b"short"), "unrecognized data|truncated|not enough"),
    "half a TIFF": (TIFF[: len(TIFF) // 2], ""),
    "postscript": (
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n",
        "not an image of",
    ),
}


@each_row("case", BAD)
def test_damage_is_told_in_one_line(case: str):
    data, message = BAD[case]
    with pytest.raises(UnreadableError) as caught:
        open_file(data, MAX_PIXELS).decode(3)
    told = str(caught.value)
    assert told and "\n" not in told
    assert any(part in told for part in message.split("|")), told


def test_bytes_between_the_parts_of_a_jpeg_do_no_harm():
    """Of a well-known set of cats and dogs one image in twenty has such."""
    place = JPEG.index(b"\xff\xda")
    data = JPEG[:place] + b"ab" + JPEG[place:]
    for least in (None, (5, 7)):
        assert (decode(data, 3, least=least) - decode(JPEG, 3) <= 4).all()


@each_row(
    "chunk",
    [
        b"VP8X" + bytes([10, 0, 0, 0, 0, 0, 0, 0]) + 2 * b"\xfe\x3f\x00",
        b"VP8L" + bytes([10, 0, 0, 0, 0x2F, 0xFE, 0xBF, 0xFF, 0x0F]) + bytes(5),
        b"VP8 " + bytes([10, 0, 0, 0, 0x10, 0, 0, 0x9D, 1, 0x2A]) + 2 * b"\xff\x3f",
    ],
)
def test_a_webp_that_claims_gigabytes_is_refused_before_it_is_opened(
    chunk: bytes, monkeypatch: pytest.MonkeyPatch
):
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("its decoder would have been made")

    monkeypatch.setattr(Image, "open", refuse)
    data = b"RIFF" + (4 + len(chunk)).to_bytes(4, "little") + b"WEBP" + chunk
    with pytest.raises(UnreadableError, match="16383x16383 pixels are more than"):
        open_file(data, 2**27)
