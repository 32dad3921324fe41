"""Checks of dense targets, such as masks, against their images."""

from typing import Any, NamedTuple

import numpy as np

from jaxtrain.data.boxes import NAMES, NUM_BOXES
from jaxtrain.data.files import UnreadableError
from jaxtrain.data.image_source import Source
from jaxtrain.data.pixel_classes import IGNORED, PIXEL_CLASSES
from jaxtrain.data.target_transform import ResizedCrop, transform_of
from jaxtrain.plugins.doctor.look import Look


class TargetLook(NamedTuple):
    """Properties of a dense target: a mask or boxes.

    Attributes:
      pixels: Number of pixels of each class in a mask, (256,); None for other or
        invalid targets.
      problem: Reason why the target does not fit its image, or empty.
      boxes: Number of boxes of each class, before and after cropping and resizing,
        (2, classes); None for other or invalid targets.
    """

    pixels: np.ndarray | None = None
    problem: str = ""
    boxes: np.ndarray | None = None


def look_at_target(target: Any, look: Look, source: Source) -> TargetLook:
    """Check a target against its image, and return the properties of the target.

    Args:
      target: Target as read from the store.
      look: Properties of the image; targets of unreadable images are skipped.
      source: Source of the example.
    """
    transform = transform_of(source.store)
    if look.unreadable or transform is None:
        return TargetLook()
    size = look.height, look.width
    try:
        full = (0, 0, look.width, look.height)
        transformed = transform(target, ResizedCrop(size, full, size, look.orientation))
    except UnreadableError as error:
        return TargetLook(problem=str(error))
    if NUM_BOXES in source.facts:
        seen = source.image_shape[:2]
        box = (0, 0, look.width, look.height)
        if size != seen:
            box = source.fit.centre_box(*size, seen[0])
        left = transform(target, ResizedCrop(size, box, seen, look.orientation))
        num = len(source.facts[NAMES])
        counts = [
            np.bincount(classes[~crowd], minlength=num)
            for classes, crowd in (
                (target.classes, target.crowd),
                (left["classes"], left["crowd"] | (left["classes"] < 0)),
            )
        ]
        return TargetLook(boxes=np.array(counts))
    if PIXEL_CLASSES not in source.facts:
        return TargetLook()
    return TargetLook(np.bincount(transformed.ravel(), minlength=IGNORED + 1))
