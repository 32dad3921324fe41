"""16-bit images, and TIFFs with bands in addition to the colour channels.

Training uses 8 bits. Pillow keeps the upper 8 of 16 bits, so that 12-bit data, as from
cameras and microscopes, retain only 16 grey levels.
"""

import io
import math
import re
from typing import Any, BinaryIO

import numpy as np
from PIL import Image, TiffImagePlugin

# Maximum number of significant bits of 16-bit images for which a white level is
# suggested.
MOST_BITS = 14
# Pillow's raw modes of 16-bit colour images. Pillow decodes only the upper bytes.
DEEP = re.compile(r"(RGB|RGBA|RGBX|RGBa);16([BLN])")
# Byte order of a raw mode -> opposite byte order, with which Pillow decodes the lower
# byte of each value, not the upper byte. N is native, here little-endian.
OTHER = {"B": "L", "L": "B", "N": "B"}
# TIFF tags.
SAMPLES_PER_PIXEL, PHOTOMETRIC = 277, 262
# Photometric interpretations of grey images, whose additional bands have no defined
# meaning.
GREY = (0, 1)


def values(data: bytes, formats: tuple[str, ...]) -> np.ndarray | None:
    """Return the stored values of a 16-bit image file, uint16 (H, W) or (H, W, C).

    The result is None for images with 8 bits per channel, and for 16-bit formats that
    Pillow does not support.

    Args:
      data: Contents of the file.
      formats: Pillow's names of the formats to try.
    """
    with Image.open(io.BytesIO(data), formats=formats) as image:
        if image.mode.startswith("I;16"):
            return np.asarray(image).astype(np.uint16)
        if DEEP.fullmatch(_raw_mode(image)) is None:
            return None
        high = np.asarray(image).astype(np.uint16)
    with Image.open(io.BytesIO(data), formats=formats) as image:
        image.tile = [tile._replace(args=_swapped(tile.args)) for tile in image.tile]
        return high << 8 | np.asarray(image)


def to_8_bits(stored: np.ndarray, white_level: int) -> Image.Image:
    """Scale stored values to an 8-bit Pillow image; `white_level` becomes 255."""
    scaled = stored.astype(np.uint32) * 256 // (white_level + 1)
    return Image.fromarray(np.minimum(scaled, 255).astype(np.uint8))


def fitting_level(largest: int) -> int | None:
    """Return the smallest 2^b - 1 >= `largest` with 8 <= b <= 14, or None."""
    bits = max(8, math.ceil(math.log2(largest + 1)))
    return 2**bits - 1 if bits <= MOST_BITS else None


def bands_beyond(data: bytes, formats: tuple[str, ...]) -> tuple[int, int]:
    """Return the number of bands of an image file, and how many Pillow drops."""
    with Image.open(io.BytesIO(data), formats=formats) as image:
        used = len(image.getbands())
        if image.format != "TIFF":
            return used, 0
        # In the name of a raw mode, each X stands for a skipped band.
        skipped = _raw_mode(image).partition(";")[0].count("X")
        num = max(
            int(getattr(image, "tag_v2", {}).get(SAMPLES_PER_PIXEL, used)), skipped
        )
        return num, skipped or max(0, num - used)


def unknown_bands(file: BinaryIO) -> str | None:
    """Return the error message for a TIFF with bands of unknown meaning, or None."""
    try:
        file.seek(0)
        tags = TiffImagePlugin.ImageFileDirectory_v2(file.read(8))
        file.seek(tags.next)
        tags.load(file)
        num = int(tags.get(SAMPLES_PER_PIXEL, 1))
        is_grey = tags.get(PHOTOMETRIC) in GREY
    except Exception:  # The file is damaged, or not a TIFF.
        return None
    if num < 2 or not is_grey:
        return None
    return (
        f"the image has {num} bands of unknown colours: save the image as RGB, or save "
        "arrays (arrays:FILE.npz)"
    )


def _raw_mode(image: Any) -> str:
    args = image.tile[0].args if getattr(image, "tile", None) else ""
    return str(args if isinstance(args, str) else args[0]) if args else ""


def _swapped(args: Any) -> Any:
    mode = args if isinstance(args, str) else args[0]
    other = mode[:-1] + OTHER[mode[-1]]
    return other if isinstance(args, str) else (other, *args[1:])
