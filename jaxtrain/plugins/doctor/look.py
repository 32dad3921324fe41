"""Statistics and fingerprint of an image, from a single decoding.

For a sound, the image is the spectrogram of its evaluation clip.
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

# Height and width in pixels of the grey thumbnail for the search of near-duplicates.
SMALL = 32
# The 256 pixel values, scaled to 0..1, and their squares, (256, 2).
_VALUES = np.stack([np.arange(256) / 255, (np.arange(256) / 255) ** 2], axis=1)


class Look(NamedTuple):
    """Properties of an image.

    Attributes:
      mode: Pillow mode of the stored pixels; or, for sounds, sample rate, channels and
        encoding.
      format: Format of the file in Pillow's or libsndfile's terms; empty for arrays.
      remarks: Any of `extension`, `rotated`, `animated`, `alpha`, `clipped`.
      height: Height of the upright image in pixels; 1 for sounds.
      width: Width of the upright image in pixels; length in milliseconds for sounds.
      signature: Hash of size, histogram and `small`: equal for equal pixels, and rarely
        equal for different pixels (see `hash_pixels`).
      moments: Mean and mean square of each channel, for pixels in 0..1, (2, channels).
      small: Grey thumbnail, uint8 (SMALL, SMALL).
      unreadable: Reason why the image is unreadable, or empty. The other attributes of
        unreadable images have their defaults.
      orientation: EXIF orientation of the stored image; 1 is upright.
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
    """Decode an image as in a run, and return its properties."""
    if not source.input.are_images:
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
    """Return a 64-bit hash of the size and decoded pixels of an image.

    The probability of any collision among a million images is 3e-8.

    Raises:
      UnreadableError: The file is damaged.
    """
    pixels = _decoded(stored, source)
    return _hash(pixels.tobytes(), pixels.shape)


def picture(stored: StoredFile | np.ndarray, source: Source) -> np.ndarray:
    """Return an example as an image for display, uint8 (H, W, C).

    Raises:
      UnreadableError: The file is damaged.
    """
    pixels = _decoded(stored, source)
    kind = source.input
    return pixels if kind.are_images else _image_of(pixels, kind)


def _decoded(stored: StoredFile | np.ndarray, source: Source) -> np.ndarray:
    """Decode an image to uint8 pixels, or another input with `InputKind.decode`."""
    wanted = source.image_shape[-1]
    if isinstance(stored, np.ndarray):
        return images.to_channels(stored, wanted)
    if not source.input.are_images:
        return source.input.decode(stored.data)
    return source.open(stored).decode(wanted)


def _look_at_other(stored: StoredFile | np.ndarray, kind: InputKind) -> Look:
    """Return the properties of a non-image input, after conversion to an image."""
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
    """Convert a stored example to the model's input image, uint8 (H, W, C)."""
    # Convert on the CPU, because a GPU may be in use by runs.
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
    # Pillow's histogram is seven times as fast as NumPy's mean and standard deviation.
    counts = np.array(picture.histogram(), np.int64).reshape(-1, 256)
    return _describe(counts, picture.convert("L"), mode, format, remarks)


def _describe(
    counts: np.ndarray,
    grey: Image.Image,
    mode: str,
    format: str = "",
    remarks: Sequence[str] = (),
) -> Look:
    """Return the properties of an image.

    Args:
      counts: Histogram of the pixels, (channels, 256).
      grey: Greyscale version of the image.
      mode: Pillow mode, as in `Look`.
      format: Format of the file, as in `Look`.
      remarks: Unusual properties of the file, as in `Look`.
    """
    width, height = grey.size
    # `reducing_gap` first shrinks large images by an integer factor. This takes a third
    # of the time, and the result is equal up to rounding.
    small = np.asarray(
        grey.resize((SMALL, SMALL), Image.Resampling.BILINEAR, reducing_gap=3.0)
    )
    moments = (counts @ _VALUES).T / (height * width)
    signature = _hash(counts.tobytes() + small.tobytes(), (height, width))
    return Look(mode, format, remarks, height, width, signature, moments, small)


def _remarks(name: str, file: ImageFile) -> list[str]:
    """List the unusual properties of a readable file."""
    found = []
    # Unknown extensions are not checked.
    ending = os.path.splitext(name)[1].lower()
    if formats.ENDINGS.get(ending, file.format) != file.format:
        found.append("extension")
    if file.orientation != 1:
        found.append("rotated")
    if file.format != "JPEG":
        # Ignore other defects of the file, because its pixels could be decoded.
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
