"""Images read ahead by threads, while the device computes the batch before."""

import contextlib
import itertools
import os
from collections.abc import Callable, Generator
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxtrain.data import ahead
from jaxtrain.data.files import UnreadableError
from jaxtrain.data.image_files import shown
from jaxtrain.errors import UserError
from jaxtrain.evaluation.evaluate import results
from jaxtrain.evaluation.finite import NOT_FINITE, Checked
from jaxtrain.inference.pixels import AnyImage, to_pixels
from jaxtrain.weights.description import Description

# Images that a thread reads at once: all threads have a part of the first batch.
UNIT = 8
# Batches that are read ahead of the one that the device gets.
AHEAD = 2


class ImageBatch(NamedTuple):
    """A batch of images, and what was found in them.

    Attributes:
      images: Images as they were given, such as paths of files.
      pixels: What the model sees of them, uint8 (n, H, W, C), or other inputs as they
        are stored, (n, ...); zeros of bad ones.
      errors: Why each image has no prediction, or None.
      found: Arrays on the host, (n, ...), in any tree.
    """

    images: list[Any]
    pixels: np.ndarray
    errors: list[str | None]
    found: Any = None


Batches = Generator[ImageBatch, None, None]


def load(
    get: Callable[[int], AnyImage], num: int, about: Description, batch_size: int
) -> Batches:
    """Yield batches of images, in order; the last one may be smaller.

    Args:
      get: Function that returns an image by its place.
      about: Model that the images are for.
    """
    units = -(-batch_size // UNIT)
    num_batches = -(-num // batch_size)

    def read(position: int) -> ImageBatch:
        """Read a part of a batch, which may be none of it."""
        batch, part = divmod(position, units)
        end = min(num, (batch + 1) * batch_size)
        start = batch * batch_size + part * UNIT
        some = [get(i) for i in range(start, min(end, start + UNIT))]
        shape = about.whole_shape
        pixels = np.zeros((len(some), *shape), about.stored_dtype)
        errors: list[str | None] = [None] * len(some)
        for i, image in enumerate(some):
            try:
                pixels[i] = to_pixels(image, shape, about.fit, input=about.input)
            except UnreadableError as error:
                errors[i] = str(error)
        return ImageBatch(some, pixels, errors)

    positions = range(num_batches * units)
    reading = ahead.by_threads(read, positions, ahead.READ_THREADS, AHEAD * units)
    with contextlib.closing(reading) as parts:
        for _ in range(num_batches):
            some = list(itertools.islice(parts, units))
            yield ImageBatch(
                [image for part in some for image in part.images],
                np.concatenate([part.pixels for part in some]),
                [error for part in some for error in part.errors],
            )


def computed(batches: Batches, start: Callable[[np.ndarray], Checked]) -> Batches:
    """Yield each batch with what is computed of its images.

    An image whose outputs are not finite has that as its error.

    Args:
      batches: Batches of images; closed at the end.
      start: Function that starts to compute (n or more, ...) of the images, where rows
        beyond n are of padding.
    """
    started = results(batches, lambda batch: start(batch.pixels))
    with contextlib.closing(started):
        for batch, (values, finite) in started:
            num = len(batch.pixels)
            found = jax.tree.map(lambda x, num=num: np.asarray(x)[:num], values)
            good = np.asarray(finite)[:num].tolist()
            errors = [
                error if error is not None or is_good else NOT_FINITE
                for error, is_good in zip(batch.errors, good, strict=True)
            ]
            yield batch._replace(errors=errors, found=found)


def refuse_errors(batches: Batches) -> Batches:
    """Let batches through whose images all have a prediction.

    Raises:
      UserError: An image could not be read, or its outputs are not finite.
    """
    start = 0
    with contextlib.closing(batches):
        for batch in batches:
            for i, error in enumerate(batch.errors):
                if error is not None:
                    image = batch.images[i]
                    known = isinstance(image, str | os.PathLike)
                    name = shown(os.fsencode(image)) if known else f"image {start + i}"
                    what = ": " if error == NOT_FINITE else " is unreadable: "
                    raise UserError(f"{name}{what}{error}")
            start += len(batch.errors)
            yield batch
