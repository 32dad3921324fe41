"""Image batches, which threads prefetch while the devices compute."""

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

# Unit: number of images that a thread reads at a time. It is small, so that all threads
# contribute to the first batch.
UNIT = 8
# Number of batches to prefetch.
AHEAD = 2


class ImageBatch(NamedTuple):
    """A batch of images with its results.

    Attributes:
      images: Images as given, such as file paths.
      pixels: Preprocessed images, uint8 (n, H, W, C), or inputs of another type, (n,
        ...); zeros for unreadable images.
      errors: Error message of each image; None for images without errors.
      results: Pytree of NumPy arrays, (n, ...); None in batches of `load`.
    """

    images: list[Any]
    pixels: np.ndarray
    errors: list[str | None]
    results: Any = None


Batches = Generator[ImageBatch, None, None]


def load(
    get: Callable[[int], AnyImage], num: int, about: Description, batch_size: int
) -> Batches:
    """Yield batches of preprocessed images, in order; the last batch may be smaller.

    Args:
      get: Function (index) -> image of any type.
      num: Number of images.
      about: Description of the model, including its preprocessing.
      batch_size: Number of images in a batch.
    """
    units = -(-batch_size // UNIT)
    num_batches = -(-num // batch_size)

    def read(position: int) -> ImageBatch:
        """Read one unit of images; units beyond the end of a batch are empty."""
        batch, part = divmod(position, units)
        end = min(num, (batch + 1) * batch_size)
        start = batch * batch_size + part * UNIT
        unit = [get(i) for i in range(start, min(end, start + UNIT))]
        shape = about.whole_shape
        pixels = np.zeros((len(unit), *shape), about.stored_dtype)
        errors: list[str | None] = [None] * len(unit)
        for i, image in enumerate(unit):
            try:
                pixels[i] = to_pixels(image, shape, about.fit, input=about.input)
            except UnreadableError as error:
                errors[i] = str(error)
        return ImageBatch(unit, pixels, errors)

    positions = range(num_batches * units)
    reading = ahead.by_threads(read, positions, ahead.READ_THREADS, AHEAD * units)
    with contextlib.closing(reading) as parts:
        for _ in range(num_batches):
            units_of_batch = list(itertools.islice(parts, units))
            yield ImageBatch(
                [image for part in units_of_batch for image in part.images],
                np.concatenate([part.pixels for part in units_of_batch]),
                [error for part in units_of_batch for error in part.errors],
            )


def computed(batches: Batches, start: Callable[[np.ndarray], Checked]) -> Batches:
    """Compute the results of batches; images with non-finite outputs get an error.

    Args:
      batches: Generator of batches, which is closed at the end.
      start: Function that dispatches the computation of results for pixels (n, ...).
        Only the first n results are valid.
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
            yield batch._replace(errors=errors, results=found)


def refuse_errors(batches: Batches) -> Batches:
    """Yield batches; raise UserError at the first image with an error.

    Raises:
      UserError: An image is unreadable, or its outputs are not finite.
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
