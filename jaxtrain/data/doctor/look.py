"""What there is to know of one image: read once, decoded once, kept small."""

import contextlib
import hashlib
import io
import os
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from PIL import Image

from jaxtrain.data import files, formats, images
from jaxtrain.data.files import ImageFile, StoredFile, UnreadableError
from jaxtrain.data.image_source import Source

# Side of the grey image that what is nearly the same is found by.
SMALL = 32
# Values of pixels, and their squares, in 0..1.
_VALUES = np.stack([np.arange(256) / 255, (np.arange(256) / 255) ** 2], axis=1)


class Look(NamedTuple):
    """What was seen of an image.

    Attributes:
      mode: Mode of the stored pixels, as Pillow calls it; of arrays their channels.
      format: Format of the file, as Pillow calls it; empty for arrays.
      remarks: Any of `extension`, `rotated`, `animated`, `alpha`.
      height: Upright, in pixels.
      width: Upright, in pixels.
      pixel_hash: Hash of the size and the decoded pixels.
      moments: Mean and mean square of each channel in 0..1, (2, channels).
      small: Image in grey, uint8 (SMALL, SMALL).
      unreadable: Why it cannot be read; all else is empty then.
    """

    mode: str = ""
    format: str = ""
    remarks: Sequence[str] = ()
    height: int = 0
    width: int = 0
    pixel_hash: int = 0
    moments: np.ndarray = np.zeros((2, 1))
    small: np.ndarray = np.zeros((SMALL, SMALL), np.uint8)
    unreadable: str = ""


def look_at(stored: StoredFile | np.ndarray, source: Source) -> Look:
    """Decode an image of a source as a run would, and describe it."""
    wanted = source.image_shape[-1]
    if isinstance(stored, np.ndarray):
        channels = stored.shape[-1]
        mode = files.MODES.get(channels, f"{channels} channels")
        return _describe(images.to_channels(stored, wanted), mode)
    try:
        file = source.open(stored)
        pixels = file.decode(wanted)
    except UnreadableError as error:
        return Look(unreadable=str(error))
    return _describe(pixels, file.mode, file.format, _remarks(stored.name, file))


def _describe(
    pixels: np.ndarray, mode: str, format: str = "", remarks: Sequence[str] = ()
) -> Look:
    height, width, channels = pixels.shape
    if channels in files.MODES:
        picture = Image.fromarray(pixels[..., 0] if channels == 1 else pixels)
        # Seven times as fast as NumPy's mean and standard deviation.
        counts = np.array(picture.histogram(), np.int64).reshape(channels, 256)
        grey = picture.convert("L")
    else:
        counts = images.histogram(pixels)
        grey = Image.fromarray(pixels.mean(axis=-1).astype(np.uint8))
    # Large ones are halved first, in a third of the time; what differs is a rounding.
    small = grey.resize((SMALL, SMALL), Image.Resampling.BILINEAR, reducing_gap=3.0)
    moments = (counts @ _VALUES).T / (height * width)
    return Look(
        mode,
        format,
        remarks,
        height,
        width,
        _hash(pixels),
        moments,
        np.asarray(small),
    )


def _remarks(name: str, file: ImageFile) -> list[str]:
    """Name what is unusual about a file that can be read."""
    found = []
    # Other endings tell nothing.
    ending = os.path.splitext(name)[1].lower()
    if formats.ENDINGS.get(ending, file.format) != file.format:
        found.append("extension")
    if file.orientation != 1:
        found.append("rotated")
    if file.format != "JPEG":
        # The pixels are good: what else is wrong with the file does not matter.
        with (
            contextlib.suppress(Exception),
            Image.open(io.BytesIO(file.data), formats=(file.format,)) as image,
        ):
            if image.has_transparency_data:
                found.append("alpha")
            if getattr(image, "is_animated", False):
                found.append("animated")
    return found


def _hash(pixels: np.ndarray) -> int:
    """Return 64 bits: two of a million images share them by chance once in 4e7 sets."""
    digest = hashlib.sha256(np.ascontiguousarray(pixels).data)
    digest.update(str(pixels.shape).encode())
    return int.from_bytes(digest.digest()[:8], "little")
