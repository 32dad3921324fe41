"""A folder of images with one of each defect, by name."""

import io
import json
import os
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from tests.helpers.images import encode

# Names that a terminal, a page or a list could take for something else.
HOSTILE = "<img src=x onerror=alert(1)>.png"
ODD_NAMES = [HOSTILE, "[red]x.png", "new\nline.png", os.fsdecode(b"\xff.png")]


@dataclass
class Zoo:
    """A folder SPLIT/CLASS/NAME, and which files were planted as what."""

    root: Path
    planted: dict[str, set[str]] = field(default_factory=dict)

    def add(self, kind: str | None, name: str, data: bytes) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        if kind is not None:
            self.planted.setdefault(kind, set()).add(str(path))

    def config(self, **fields: object) -> str:
        """Return the expression of a recipe for the folder."""
        given = {
            "source": f"folder:{self.root}",
            "image_size": 16,
            "validation_fraction": 0.0,
            "batch_size": 8,
            **fields,
        }
        shown = ", ".join(f"{k}={v!r}" for k, v in given.items())
        return f"Config(data=DataConfig({shown}))"


def texture(seed: int, side: int = 48) -> np.ndarray:
    """Return a smooth random picture in colour; no two look alike."""
    coarse = np.random.default_rng(seed).integers(0, 256, (9, 9, 3), dtype=np.uint8)
    image = Image.fromarray(coarse).resize((side, side), Image.Resampling.BICUBIC)
    return np.asarray(image)


def save(image: Image.Image, format: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format, **options)  # type: ignore[arg-type]
    return buffer.getvalue()


def bomb(side: int = 100_000) -> bytes:
    """Return a PNG of a few bytes that says it has ten thousand million pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        check = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", check)

    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    rows = chunk(b"IDAT", zlib.compress(bytes(1000)))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + rows + chunk(b"IEND", b"")


def plant_files(zoo: Zoo, picture: Callable[[int], np.ndarray]) -> None:
    """Plant what is wrong, or unusual, with single files, among cats to train on.

    Args:
      zoo: takes them.
      picture: number, 1000 or more -> pixels (H, W, 3), no two alike.
    """
    good = encode(picture(1000))
    photo = save(Image.fromarray(picture(1001)), "JPEG", quality=90)
    cat = "train/cat"
    zoo.add("unreadable", f"{cat}/truncated.png", good[: len(good) // 2])
    zoo.add("unreadable", f"{cat}/truncated.jpg", photo[: len(photo) // 2])
    zoo.add("unreadable", f"{cat}/empty.png", b"")
    zoo.add("unreadable", f"{cat}/text.jpg", b"this is no picture\n" * 9)
    zoo.add("unreadable", f"{cat}/bomb.png", bomb())
    zoo.add("extension", f"{cat}/jpeg.png", photo)
    images = [Image.fromarray(picture(number)) for number in range(1002, 1012)]
    zoo.add(
        "animated",
        f"{cat}/animated.gif",
        save(images[0], "GIF", save_all=True, append_images=[images[1]]),
    )
    zoo.planted.setdefault("modes", set()).add(str(zoo.root / cat / "animated.gif"))
    exif = Image.Exif()
    exif[0x0112] = 6
    zoo.add("rotated", f"{cat}/rotated.jpg", save(images[2], "JPEG", exif=exif))
    alpha = images[3].convert("RGBA")
    alpha.putalpha(200)
    zoo.add("alpha", f"{cat}/alpha.png", save(alpha, "PNG"))
    zoo.planted["modes"].add(str(zoo.root / cat / "alpha.png"))
    zoo.add("modes", f"{cat}/grey.png", save(images[4].convert("L"), "PNG"))
    zoo.add("modes", f"{cat}/cmyk.jpg", save(images[5].convert("CMYK"), "JPEG"))
    deep = np.asarray(images[6].convert("L")).astype(np.uint16) * 257
    zoo.add("modes", f"{cat}/deep.png", save(Image.fromarray(deep), "PNG"))
    wide = np.random.default_rng(0).integers(0, 256, (1, 30_000, 3), dtype=np.uint8)
    zoo.add("aspect", f"{cat}/wide.png", encode(wide))
    zoo.add("blank", f"{cat}/one_pixel.png", encode(np.full((1, 1, 3), 9, np.uint8)))
    zoo.add("blank", f"{cat}/blank.png", encode(np.full((48, 48, 3), 200, np.uint8)))
    for number, name in enumerate(ODD_NAMES, 1020):
        zoo.add(None, f"{cat}/{name}", encode(picture(number)))


def plant_pairs(zoo: Zoo, picture: Callable[[int], np.ndarray]) -> None:
    """Plant images that are there twice: in a split, in two, with two labels."""
    for kind, number, one, other in (
        ("duplicates", 1030, "train/dog/a.png", "train/dog/a_again.png"),
        ("duplicates_leak", 1031, "train/dog/b.png", "test/dog/b_again.png"),
        ("duplicates_conflict", 1032, "train/dog/c.png", "train/cat/c_again.png"),
    ):
        for name in (one, other):
            zoo.add(kind, name, encode(picture(number)))
    pixels = Image.fromarray(picture(1033))
    zoo.add("near", "train/dog/d.png", save(pixels, "PNG"))
    zoo.add("near", "train/dog/d_again.jpg", save(pixels, "JPEG", quality=85))
    pixels = Image.fromarray(picture(1034))
    zoo.add("near_leak", "train/dog/e.png", save(pixels, "PNG"))
    zoo.add("near_leak", "test/dog/e_again.jpg", save(pixels, "JPEG", quality=85))


def make_zoo(
    root: Path,
    *,
    num: int = 12,
    picture: Callable[[int], np.ndarray] = texture,
) -> Zoo:
    """Write cats and dogs, and all defects among them.

    Args:
      root: the folder.
      num: of a class, without a defect, to train on; half as many to test.
      picture: number -> pixels (H, W, 3), no two alike.
    """
    zoo = Zoo(root)
    number = 0
    for split, count in (("train", num), ("test", num // 2)):
        for name in ("cat", "dog"):
            for i in range(count):
                number += 1
                zoo.add(None, f"{split}/{name}/{i:03}.png", encode(picture(number)))
    plant_files(zoo, picture)
    plant_pairs(zoo, picture)
    return zoo


def read_report(folder: Path) -> dict[str, Any]:
    """Return the report that a check has left in a folder."""
    return json.loads((folder / "data_report.json").read_text())


def found(report: dict[str, Any]) -> dict[str, set[str]]:
    """Return the names of the examples of each finding."""
    return {
        finding["kind"]: {example["name"] for example in finding["examples"]}
        for finding in report["findings"]
    }
