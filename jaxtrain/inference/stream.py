"""Images read ahead by threads, while the device computes the batch before."""

import contextlib
import functools
import os
from collections.abc import Callable, Generator, Sequence
from typing import NamedTuple

import numpy as np

from jaxtrain.data import ahead
from jaxtrain.data.files import UnreadableError
from jaxtrain.data.image_files import shown
from jaxtrain.errors import UserError
from jaxtrain.inference.description import Description
from jaxtrain.inference.pixels import AnyImage, to_pixels

# Images that a thread reads at once: all threads have a part of the first batch.
UNIT = 8
# Batches that are read ahead of the one that the device gets.
AHEAD = 2


class Loaded(NamedTuple):
    """A batch of images.

    Attributes:
      start: place of its first image among all.
      pixels: uint8 (n, H, W, C); zeros where an image could not be read.
      errors: place in the batch -> why the image could not be read.
    """

    start: int
    pixels: np.ndarray
    errors: dict[int, UnreadableError]


def load(
    get: Callable[[int], AnyImage], num: int, about: Description, batch_size: int
) -> Generator[Loaded, None, None]:
    """Yield batches of images, in order; the last one may be smaller."""
    units = -(-batch_size // UNIT)
    last = -(-num // batch_size)
    read = functools.partial(_read, get, num, about, batch_size, units)
    positions = range(last * units)
    num_ahead = AHEAD * units
    reading = ahead.by_threads(read, positions, ahead.READ_THREADS, num_ahead)
    with contextlib.closing(reading) as parts:
        for batch in range(last):
            some = [next(parts) for _ in range(units)]
            yield _join(batch * batch_size, some)


def _read(
    get: Callable[[int], AnyImage],
    num: int,
    about: Description,
    batch_size: int,
    units: int,
    position: int,
) -> Loaded:
    """Read a part of a batch, which may be none of it."""
    batch, part = divmod(position, units)
    first = batch * batch_size
    start, end = first + part * UNIT, min(num, first + batch_size)
    places = range(min(start, end), min(start + UNIT, end))
    pixels = np.zeros((len(places), *about.image_shape), np.uint8)
    errors = {}
    for i, place in enumerate(places):
        try:
            pixels[i] = to_pixels(get(place), about.image_shape, about.fit)
        except UnreadableError as error:
            errors[part * UNIT + i] = error
    return Loaded(start, pixels, errors)


def _join(start: int, parts: list[Loaded]) -> Loaded:
    errors = {place: error for part in parts for place, error in part.errors.items()}
    return Loaded(start, np.concatenate([part.pixels for part in parts]), errors)


def refuse(
    batches: Generator[Loaded, None, None], images: Sequence[AnyImage]
) -> Generator[Loaded, None, None]:
    """Let batches through whose images could all be read.

    Raises:
      UserError: an image could not be read.
    """
    with contextlib.closing(batches):
        for batch in batches:
            for place, error in batch.errors.items():
                index = batch.start + place
                image = images[index]
                known = isinstance(image, str | os.PathLike)
                name = shown(os.fsencode(image)) if known else f"image {index}"
                raise UserError(f"{name} is unreadable: {error}")
            yield batch
