"""A folder of images as people have them: of all formats, nested, with leftovers."""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from jaxtrain.data import formats
from tests.helpers.bad_images import half
from tests.helpers.zoo import save

# Name below the folder of a class -> its format; names of several kinds.
NAMES = (
    ("IMG_0001.JPG", "JPEG"),
    ("IMG_0002.HEIC", "HEIF"),
    ("Übung für später.png", "PNG"),
    ("2023/Sommer/IMG_0003.jpeg", "JPEG"),
    ("bild.avif", "AVIF"),
    (os.fsdecode(b"caf\xe9.webp"), "WEBP"),
)
# What a run passes over, in each class.
PASSED_OVER = ("Thumbs.db", "notes.txt", "raw.CR2", ".DS_Store")


@dataclass(frozen=True)
class Messy:
    """What was written.

    Attributes:
      root: the folder.
      num_images: that are read by their endings, damaged ones among them.
      num_damaged: of these.
    """

    root: Path
    num_images: int
    num_damaged: int


def picture(class_number: int, number: int, side: int = 40) -> Image.Image:
    """Return a picture that tells its class by stripes that lie, or stand, in noise."""
    rng = np.random.default_rng([class_number, number])
    wave = 90 * np.sin(np.arange(side) / 2 + rng.uniform(0, 6))
    stripes = wave[:, None] if class_number == 0 else wave[None, :]
    noise = rng.normal(128, 20, (side, side, 3))
    return Image.fromarray(np.clip(noise + stripes[..., None], 0, 255).astype(np.uint8))


def make_messy(root: Path, num: int = 24, *, num_damaged: int = 1) -> Messy:
    """Write two classes, `Hühner` and `ducks`, and what programs leave beside them.

    Args:
      root: the folder, which is made.
      num: good images of a class, at least as many as there are kinds of names.
      num_damaged: images of the first class that cannot be read.
    """
    # Loads the plugin with which Pillow writes the format, too.
    assert formats.is_read("HEIF") and formats.is_read("AVIF")
    for class_number, name in enumerate(("Hühner", "ducks")):
        for i in range(num):
            place, format = NAMES[i % len(NAMES)]
            path = root / name / place
            path = path.with_name(f"{i}_{path.name}" if i >= len(NAMES) else path.name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(save(picture(class_number, i), format))
        for left in PASSED_OVER:
            (root / name / left).write_bytes(b"no image")
    damaged = save(picture(0, num), "JPEG", quality=95)
    for i in range(num_damaged):
        (root / "Hühner" / f"cut_{i}.jpg").write_bytes(half(damaged))
    (root / "__MACOSX" / "ducks").mkdir(parents=True)
    (root / "__MACOSX" / "ducks" / "._IMG_0001.JPG").write_bytes(b"\0\5\x16\7")
    (root / "stray.png").write_bytes(save(picture(0, num + 1), "PNG"))
    (root / "README.md").write_text("My birds\n", encoding="utf-8")
    return Messy(root, 2 * num + num_damaged, num_damaged)
