"""Proposed image sizes of a recipe."""

from typing import NamedTuple

import numpy as np

from jaxtrain.plugins.doctor.survey import Survey

SIZES = (32, 48, 64, 96, 128, 160, 192, 224)
# Images up to this size get a small network, and are augmented by small shifts.
SMALL_SIZE = 48
# Smaller images are enlarged to this size, because networks downsample a few times.
SMALLEST_SIZE = 8
# Limits for small data sets: (maximum number of training images, maximum image size).
SIZE_LIMITS = ((10_000, 128), (100_000, 160))
LARGEST_SIZE = 224


class StartWeights(NamedTuple):
    """Pretrained weights of a recipe.

    Attributes:
      pretrained: Value of `model.pretrained`.
      model: Value of `model.name`.
      size: Height and width of the images in pretraining.
      channels: Number of image channels.
    """

    pretrained: str
    model: str
    size: int
    channels: int


def image_size(found: Survey, num_train: int, letterboxed: bool) -> int:
    # Letterboxing scales the longer side of an image to the image size.
    sides = found.sizes.max(axis=1) if letterboxed else found.sizes.min(axis=1)
    shorter = int(np.median(sides))
    if shorter <= SMALL_SIZE:
        return max(shorter, SMALLEST_SIZE)
    limits = [limit for number, limit in SIZE_LIMITS if num_train <= number]
    largest = min([LARGEST_SIZE, *limits])
    return max(size for size in SIZES if size <= min(shorter, largest))


def sizes(
    found: Survey, size: int, weights: StartWeights | None
) -> dict[str, tuple[int, str]]:
    return _images_of(weights) if weights else _images(found, size)


def _images(found: Survey, size: int) -> dict[str, tuple[int, str]]:
    low, high = found.sizes.min(axis=0), found.sizes.max(axis=0)
    shapes = f"{low[1]}x{low[0]}"
    if (low != high).any():
        shapes += f" to {high[1]}x{high[0]}"
    reason = f"the images have {shapes} pixels"
    if size > SMALL_SIZE:
        reason += "; larger sizes take more time, and help with many images"
    shown = "some images are in colour" if found.colour else "all samples are grey"
    return {"image_size": (size, reason), "channels": (3 if found.colour else 1, shown)}


def _images_of(weights: StartWeights) -> dict[str, tuple[int, str]]:
    reason = "as in the training of the weights; smaller images take less time"
    channels = "grey images are converted to colour" if weights.channels == 3 else ""
    return {
        "image_size": (weights.size, reason),
        "channels": (weights.channels, channels),
    }
