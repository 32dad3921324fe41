"""What there is to know of one image: read once, decoded once, kept small.

Of a sound the image is its spectrogram, of the clip that an evaluation hears.
"""

import contextlib
import functools
import hashlib
import io
import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from PIL import Image

from jaxtrain.data import files, formats, images
from jaxtrain.data.files import ImageFile, StoredFile, UnreadableError
from jaxtrain.data.image_source import Source
from jaxtrain.data.image_statistics import histogram
from jaxtrain.data.input_kind import InputKind

# Side of the grey image that what is nearly the same is found by.
SMALL = 32
# Values of pixels, and their squares, in 0..1.
_VALUES = np.stack([np.arange(256) / 255, (np.arange(256) / 255) ** 2], axis=1)


class Look(NamedTuple):
    """What was seen of an image.

    Attributes:
      mode: Mode of the stored pixels, as Pillow calls it; of arrays their channels; of
        sounds their rate, channels and coding.
      format: Format of the file, as Pillow or libsndfile calls it; empty for arrays.
      remarks: Any of `extension`, `rotated`, `animated`, `alpha`, `clipped`.
      height: Upright, in pixels; of sounds 1.
      width: Upright, in pixels; of sounds their length in milliseconds.
      signature: Hash of the size, the histogram and `small`: the same pixels have the
        same, and those with the same are nearly always the same (see `hash_pixels`).
      moments: Mean and mean square of each channel in 0..1, (2, channels).
      small: Image in grey, uint8 (SMALL, SMALL).
      unreadable: Why it cannot be read; all else is empty then.
      orientation: Orientation of the stored image, as EXIF numbers it; 1 is upright.
    """

    mode: str = ""
    format: str = ""
    remarks: Sequence[str] = ()
    height: int = 0
    width: int = 0
    signature: int = 0
    moments: np.ndarray = np.zeros((2, 1))
    small: np.ndarray = np.zeros((SMALL, SMALL), np.uint8)
    unreadable: str = ""
    orientation: int = 1


def look_at(stored: StoredFile | np.ndarray, source: Source) -> Look:
    """Decode an image of a source as a run would, and describe it."""
    if not source.input.are_pictures:
        return _look_at_other(stored, source.input)
    wanted = source.image_shape[-1]
    if isinstance(stored, np.ndarray):
        channels = stored.shape[-1]
        mode = files.MODES.get(channels, f"{channels} channels")
        return _of_pixels(images.to_channels(stored, wanted), mode)
    try:
        file = source.open(stored)
        picture = file.picture(wanted)
    except UnreadableError as error:
        return Look(unreadable=str(error))
    remarks = _remarks(stored.name, file)
    found = _of_picture(picture, file.mode, file.format, remarks)
    return found._replace(orientation=file.orientation)


def hash_pixels(stored: StoredFile | np.ndarray, source: Source) -> int:
    """Return 64 bits of the size and the decoded pixels of an image.

    Two of a million images share them by chance once in 4e7 sets.

    Raises:
      UnreadableError: the file is damaged.
    """
    pixels = _decoded(stored, source)
    return _hash(pixels.tobytes(), pixels.shape)


def picture(stored: StoredFile | np.ndarray, source: Source) -> np.ndarray:
    """Return an image to show, uint8 (H, W, C).

    Raises:
      UnreadableError: the file is damaged.
    """
    pixels = _decoded(stored, source)
    kind = source.input
    return pixels if kind.are_pictures else _image_of(pixels, kind)


def _decoded(stored: StoredFile | np.ndarray, source: Source) -> np.ndarray:
    """Return the pixels of an image, uint8, or another input as it is stored."""
    wanted = source.image_shape[-1]
    if isinstance(stored, np.ndarray):
        return images.to_channels(stored, wanted)
    if not source.input.are_pictures:
        return source.input.decode(stored.data)
    return source.open(stored).decode(wanted)


def _look_at_other(stored: StoredFile | np.ndarray, kind: InputKind) -> Look:
    """Read a whole file, and describe it and the image that evaluations see of it."""
    assert isinstance(stored, StoredFile)
    try:
        about, part = kind.look_at(stored.data), kind.decode(stored.data)
    except UnreadableError as error:
        return Look(unreadable=str(error))
    return _of_pixels(_image_of(part, kind), about.mode)._replace(
        format=about.format,
        remarks=about.remarks,
        height=about.height,
        width=about.width,
    )


def _image_of(stored: np.ndarray, kind: InputKind) -> np.ndarray:
    """Return the image that a run makes of a stored example, uint8 (H, W, C)."""
    # The machine may have a GPU that other runs are on.
    with jax.default_device(jax.local_devices(backend="cpu")[0]):
        image = _to_images(kind)(jnp.asarray(stored)[None])[0]
    return np.rint(np.asarray(image)).astype(np.uint8)


@functools.cache
def _to_images(kind: InputKind) -> Callable[[jax.Array], jax.Array]:
    return jax.jit(kind.to_images)


def _of_pixels(pixels: np.ndarray, mode: str) -> Look:
    if pixels.shape[-1] in files.MODES:
        return _of_picture(files.to_picture(pixels), mode)
    grey = Image.fromarray(pixels.mean(axis=-1).astype(np.uint8))
    return _describe(histogram(pixels), grey, mode)


def _of_picture(
    picture: Image.Image, mode: str, format: str = "", remarks: Sequence[str] = ()
) -> Look:
    # Seven times as fast as NumPy's mean and standard deviation.
    counts = np.array(picture.histogram(), np.int64).reshape(-1, 256)
    return _describe(counts, picture.convert("L"), mode, format, remarks)


def _describe(
    counts: np.ndarray,
    grey: Image.Image,
    mode: str,
    format: str = "",
    remarks: Sequence[str] = (),
) -> Look:
    """Describe an image by the counts of its values, (channels, 256), and in grey."""
    width, height = grey.size
    # Large ones are halved first, in a third of the time; what differs is a rounding.
    small = np.asarray(
        grey.resize((SMALL, SMALL), Image.Resampling.BILINEAR, reducing_gap=3.0)
    )
    moments = (counts @ _VALUES).T / (height * width)
    signature = _hash(counts.tobytes() + small.tobytes(), (height, width))
    return Look(mode, format, remarks, height, width, signature, moments, small)


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


def _hash(data: bytes, shape: tuple[int, ...]) -> int:
    digest = hashlib.sha256(data)
    digest.update(str(shape).encode())
    return int.from_bytes(digest.digest()[:8], "little")
