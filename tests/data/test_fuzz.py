"""Files damaged by chance: a named error at most, no crash, hang or large memory."""

import faulthandler
import gzip
import io
import os
import random
import struct
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from jaxtrain.config import DataConfig
from jaxtrain.data import formats
from jaxtrain.data.arrays import open_arrays
from jaxtrain.data.canvas import cut, draw
from jaxtrain.data.csv_list import open_csv
from jaxtrain.data.files import UnreadableError, open_file
from jaxtrain.data.fit import Fit
from jaxtrain.data.idx import open_idx
from jaxtrain.data.images import fit_file
from jaxtrain.data.random_windows import WINDOW
from jaxtrain.errors import UserError
from tests.helpers.images import write_folder
from tests.helpers.waiting import PATIENCE

MAX_PIXELS = 2**16
# Of one file; a hundred times what one takes.
MAX_SECONDS = 2.0
MAX_BYTES = 2**27
FIT = Fit(window=WINDOW)

RGB = np.random.default_rng(0).integers(0, 256, (20, 24, 3), np.uint8)
IMAGES = {
    "RGB": Image.fromarray(RGB),
    "L": Image.fromarray(RGB[..., 0].copy()),
    "P": Image.fromarray(RGB).quantize(16),
    "RGBA": Image.fromarray(np.dstack([RGB, RGB[..., 0]])),
    "1": Image.fromarray(RGB[..., 0] > 99),
    "I;16": Image.fromarray(RGB[..., 0].astype(np.uint16) * 200),
    "CMYK": Image.fromarray(RGB).convert("CMYK"),
}
EXIF = Image.Exif()
EXIF[0x0112] = 6
SAVED: list[tuple[str, str, dict[str, Any]]] = [
    *(("JPEG", mode, {"exif": EXIF}) for mode in ("RGB", "L", "CMYK")),
    ("JPEG", "RGB", {"progressive": True}),
    ("MPO", "RGB", {"save_all": True, "append_images": [IMAGES["RGB"]]}),
    *(("PNG", mode, {"exif": EXIF}) for mode in ("RGB", "L", "P", "RGBA", "1", "I;16")),
    ("PNG", "RGB", {"save_all": True, "append_images": [IMAGES["RGB"].rotate(9)]}),
    ("GIF", "P", {"save_all": True, "append_images": [IMAGES["P"].rotate(9)]}),
    *(("WEBP", "RGBA", {"lossless": lossless}) for lossless in (True, False)),
    *(("BMP", mode, {}) for mode in ("RGB", "L", "P", "1")),
    *(("TIFF", mode, {}) for mode in ("RGB", "P", "RGBA", "1", "I;16", "CMYK")),
    *(
        ("TIFF", "RGB", {"compression": name})
        for name in ("tiff_lzw", "tiff_adobe_deflate", "packbits", "jpeg")
    ),
    ("TIFF", "1", {"compression": "group4"}),
    *(("AVIF", mode, {"exif": EXIF, "speed": 9}) for mode in ("RGB", "L", "RGBA")),
    *(("HEIF", mode, {"exif": EXIF}) for mode in ("RGB", "L", "RGBA")),
]


def encode(format: str, mode: str, options: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()
    IMAGES[mode].save(buffer, format, **options)
    return buffer.getvalue()


def mutate(data: bytes, rng: random.Random) -> bytes:
    """Change, flip, remove, double or cut off some bytes, of the header above all."""
    found = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        head = min(len(found), 200)
        place = rng.randrange(rng.choice((head, len(found))))
        kind = rng.randrange(6)
        if kind == 0:
            found[place] = rng.choice((0, 1, 127, 128, 255, rng.randrange(256)))
        elif kind == 1:
            found[place] ^= 1 << rng.randrange(8)
        elif kind == 2:
            del found[place : place + rng.randrange(1, 8)]
        elif kind == 3:
            found[place:place] = found[place : place + rng.randrange(1, 40)]
        elif kind == 4:
            found[place : place + 4] = rng.choice((b"\xff" * 4, bytes(4), b"\x7f" * 4))
        elif rng.random() < 0.2:
            del found[place:]
        if not found:
            break
    return bytes(found)


def repair_png(data: bytes) -> bytes:
    """Make the checksums of a PNG right, so that what lies behind them is reached."""
    found, place = data[:8], 8
    while place + 12 <= len(data):
        (length,) = struct.unpack(">I", data[place : place + 4])
        part = data[place + 4 : place + 8 + length]
        found += data[place : place + 4] + part + struct.pack(">I", zlib.crc32(part))
        place += 12 + length
    return found


def decode(data: bytes) -> None:
    try:
        file = open_file(data, MAX_PIXELS)
        for channels in (1, 3):
            pixels = file.decode(channels)
            assert pixels.dtype == np.uint8
            assert pixels.shape == (file.height, file.width, channels)
            assert fit_file(file, 5, channels).shape == (5, 5, channels)
            pixels = np.zeros((10, 10, channels), np.uint8)
            box = cut(file, draw(file, (1, 2), FIT, 5), 5, FIT, pixels)
            assert 0 <= min(box[:2]) < 1 <= max(box[2:]) <= 10
    except UnreadableError as error:
        assert str(error) and "\n" not in str(error)


def memory(field: str) -> int:
    """Return the memory of this process in bytes: VmRSS now, VmHWM at its peak."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith(field))
    return int(line.split()[1]) * 1024


def growth(use: Callable[[bytes], None], data: bytes) -> int:
    """Use a file; return by how many bytes the memory rose at its peak.

    Over all files it would count what other threads of this process are left with.
    """
    Path("/proc/self/clear_refs").write_text("5")  # Forgets the peak.
    before = memory("VmRSS")
    use(data)
    return memory("VmHWM") - before


def check(
    files: list[bytes], use: Callable[[bytes], None], number: int, seed: int
) -> None:
    """Use mutated files, in turn; a crash of the process tells the file's number."""
    rng = random.Random(seed)
    try:
        for i in range(number):
            faulthandler.dump_traceback_later(PATIENCE, exit=True)
            data = mutate(files[i % len(files)], rng)
            if data.startswith(b"\x89PNG") and rng.random() < 0.7:
                data = repair_png(data)
            start = time.process_time()
            num_bytes = growth(use, data)
            seconds = time.process_time() - start
            assert seconds < MAX_SECONDS, (seed, i, seconds)
            assert num_bytes < MAX_BYTES, (seed, i, num_bytes)
    finally:
        faulthandler.cancel_dump_traceback_later()


pytestmark = pytest.mark.exhaustive


@pytest.mark.parametrize("format", sorted({saved[0] for saved in SAVED}))
def test_images(format: str, capfd: pytest.CaptureFixture[str]):
    assert formats.is_read("HEIF") and formats.is_read("AVIF")
    files = [encode(*saved) for saved in SAVED if saved[0] == format]
    for data in files:
        assert open_file(data, MAX_PIXELS).decode(3).any()
    capfd.readouterr()  # What libtiff says of its own writing.
    check(files, decode, 2500, seed=1)
    assert capfd.readouterr() == ("", "")


def opening(path: Path, open_it: Callable[..., Any], source: str) -> Any:
    """Return what writes a file and opens the set that it is, or is part of."""

    def use(data: bytes) -> None:
        path.write_bytes(data)
        kind, _, name = source.partition(":")
        try:
            store, splits = open_it(name, DataConfig(source=f"{kind}:{name}"))
            indices = np.concatenate([shard for s in splits.values() for shard in s])
            assert len(store.read(indices)[1]) == len(indices) > 0
        except UserError as error:
            assert source in str(error)

    return use


def test_arrays(tmp_path: Path):
    files = []
    arrays = {"image": RGB, "label": np.arange(20) % 3}
    arrays |= {"image_test": RGB[:4], "label_test": np.arange(4) % 3}
    for save in (np.savez, np.savez_compressed):
        buffer = io.BytesIO()
        save(buffer, **arrays)  # type: ignore[arg-type]
        files.append(buffer.getvalue())
    path = tmp_path / "set.npz"
    use = opening(path, open_arrays, f"arrays:{path}")
    check(files, use, 2400, seed=1)


@pytest.mark.parametrize("packed", [False, True])
def test_idx(tmp_path: Path, packed: bool):
    headers = b"\0\0\x08\3" + struct.pack(">3I", *RGB.shape), b"\0\0\x08\1\0\0\0\x14"
    images, labels = headers[0] + RGB.tobytes(), headers[1] + bytes([*range(20)])
    pack = gzip.compress if packed else bytes
    end = ".gz" if packed else ""
    places = [
        tmp_path / f"train-{k}-ubyte{end}" for k in ("images-idx3", "labels-idx1")
    ]
    whole = [pack(images), pack(labels)]
    for mutated in (0, 1):
        for place, data in zip(places, whole, strict=True):
            place.write_bytes(data)
        use = opening(places[mutated], open_idx, f"idx:{tmp_path}")
        use(whole[mutated])
        check([whole[mutated]], use, 800, seed=1)


TABLE = b'path,label,split\na/1.png,x,train\n"b/2.png",y,val\nb/3.png,x,train\n'


def test_tables(tmp_path: Path):
    write_folder(tmp_path, {"a/1.png": 1, "b/2.png": 2, "b/3.png": 3})
    os.mkfifo(tmp_path / "x")
    path = tmp_path / "list.csv"
    use = opening(path, open_csv, f"csv:{path}")
    check([TABLE, TABLE.replace(b"\n", b"\r\n")], use, 2000, seed=1)
