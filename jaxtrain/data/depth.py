"""Images of 16 bits a channel, and TIFFs of more bands than colours.

A run sees 8 bits. Pillow itself keeps the upper 8 of 16, which leaves 12 bits of data,
as cameras and microscopes write them, 16 levels.
"""

import io
import math
import re
from typing import Any, BinaryIO

import numpy as np
from PIL import Image, TiffImagePlugin

# Up to so many bits of 16 the upper ones are said to be of no use.
MOST_BITS = 14
# Raw modes of colours whose bytes are taken one after the other.
DEEP = re.compile(r"(RGB|RGBA|RGBX|RGBa);16([BLN])")
# Raw mode that takes the other byte of each value; N is little-endian here.
OTHER = {"B": "L", "L": "B", "N": "B"}
# Tags of TIFF.
SAMPLES_PER_PIXEL, PHOTOMETRIC = 277, 262
# Values of the second that tell of grey; more bands than one then mean anything.
GREY = (0, 1)


def values(data: bytes, formats: tuple[str, ...]) -> np.ndarray | None:
    """Return the stored values of an image file, uint16 (H, W) or (H, W, C).

    None means that it has 8 bits a channel, or 16 of a kind that Pillow cannot tell.
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
    """Return stored values as a picture of 8 bits, in which `white_level` is 255."""
    scaled = stored.astype(np.uint32) * 256 // (white_level + 1)
    return Image.fromarray(np.minimum(scaled, 255).astype(np.uint8))


def fitting_level(largest: int) -> int | None:
    """Return the white level that fits values up to `largest`; None: 65535."""
    bits = max(8, math.ceil(math.log2(largest + 1)))
    return 2**bits - 1 if bits <= MOST_BITS else None


def bands_beyond(data: bytes, formats: tuple[str, ...]) -> tuple[int, int]:
    """Return the number of bands of an image file, and of those that are not used."""
    with Image.open(io.BytesIO(data), formats=formats) as image:
        used = len(image.getbands())
        if image.format != "TIFF":
            return used, 0
        # Pillow calls bands that it skips X.
        skipped = _raw_mode(image).partition(";")[0].count("X")
        num = max(
            int(getattr(image, "tag_v2", {}).get(SAMPLES_PER_PIXEL, used)), skipped
        )
        return num, skipped or max(0, num - used)


def unknown_bands(file: BinaryIO) -> str | None:
    """Return why a TIFF of bands without a meaning is not read; None: it is none."""
    try:
        file.seek(0)
        tags = TiffImagePlugin.ImageFileDirectory_v2(file.read(8))
        file.seek(tags.next)
        tags.load(file)
        num = int(tags.get(SAMPLES_PER_PIXEL, 1))
        is_grey = tags.get(PHOTOMETRIC) in GREY
    except Exception:  # It is no TIFF, or a damaged one.
        return None
    if num < 2 or not is_grey:
        return None
    return (
        f"it has {num} bands, and does not say which of them are red, green and blue: "
        "save these as RGB, or give arrays"
    )


def _raw_mode(image: Any) -> str:
    args = image.tile[0].args if getattr(image, "tile", None) else ""
    return str(args if isinstance(args, str) else args[0]) if args else ""


def _swapped(args: Any) -> Any:
    mode = args if isinstance(args, str) else args[0]
    other = mode[:-1] + OTHER[mode[-1]]
    return other if isinstance(args, str) else (other, *args[1:])
