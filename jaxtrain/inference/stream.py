"""Images read ahead by threads, while the device computes the batch before."""

import contextlib
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
      start: Place of its first image among all.
      pixels: Images, uint8 (n, H, W, C); zeros where one could not be read.
      errors: Why each image could not be read, if it could not.
    """

    start: int
    pixels: np.ndarray
    errors: list[UnreadableError | None]


def load(
    get: Callable[[int], AnyImage], num: int, about: Description, batch_size: int
) -> Generator[Loaded, None, None]:
    """Yield batches of images, in order; the last one may be smaller.

    Args:
      get: Function that returns an image by its place.
      num: Number of images.
      about: Model that the images are for.
      batch_size: Number of images of a batch.
    """
    units = -(-batch_size // UNIT)
    num_batches = -(-num // batch_size)

    def read(position: int) -> Loaded:
        """Read a part of a batch, which may be none of it."""
        batch, part = divmod(position, units)
        end = min(num, (batch + 1) * batch_size)
        start = min(end, batch * batch_size + part * UNIT)
        places = range(start, min(end, start + UNIT))
        pixels = np.zeros((len(places), *about.image_shape), np.uint8)
        errors: list[UnreadableError | None] = [None] * len(places)
        for i, place in enumerate(places):
            try:
                pixels[i] = to_pixels(get(place), about.image_shape, about.fit)
            except UnreadableError as error:
                errors[i] = error
        return Loaded(start, pixels, errors)

    positions = range(num_batches * units)
    reading = ahead.by_threads(read, positions, ahead.READ_THREADS, AHEAD * units)
    with contextlib.closing(reading) as parts:
        for _ in range(num_batches):
            some = [next(parts) for _ in range(units)]
            yield Loaded(
                some[0].start,
                np.concatenate([part.pixels for part in some]),
                [error for part in some for error in part.errors],
            )


def load_all(
    images: Sequence[AnyImage], about: Description, batch_size: int
) -> Generator[Loaded, None, None]:
    """Yield batches of images that can all be read: see `load`.

    Raises:
      UserError: an image could not be read.
    """
    batches = load(images.__getitem__, len(images), about, batch_size)
    with contextlib.closing(batches):
        for batch in batches:
            for index, error in enumerate(batch.errors, batch.start):
                if error is not None:
                    image = images[index]
                    known = isinstance(image, str | os.PathLike)
                    name = shown(os.fsencode(image)) if known else f"image {index}"
                    raise UserError(f"{name} is unreadable: {error}")
            yield batch
