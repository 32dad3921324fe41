"""Targets with a place in the image, such as masks: whether they fit it."""

from typing import Any, NamedTuple

import numpy as np

from jaxtrain.data.boxes import NAMES, NUM_BOXES
from jaxtrain.data.files import UnreadableError
from jaxtrain.data.image_source import Source
from jaxtrain.data.pixel_classes import IGNORED, PIXEL_CLASSES
from jaxtrain.data.target_transform import Placed, place_of
from jaxtrain.plugins.doctor.look import Look


class PlacedTarget(NamedTuple):
    """What was seen of a target.

    Attributes:
      pixels: Pixels of each class of a mask, (256,); None: it is no mask, or bad.
      problem: Why it does not fit its image; empty if it does.
      boxes: Boxes of each class that stand in the list, and that are left of these in
        the image as the model sees it, (2, classes); None: it has none, or it is bad.
    """

    pixels: np.ndarray | None = None
    problem: str = ""
    boxes: np.ndarray | None = None


def look_at_target(target: Any, look: Look, source: Source) -> PlacedTarget:
    """Place the target of an image where the image itself is.

    Args:
      target: Target as the store reads it.
      look: What was seen of the image; nothing is placed in one that is unreadable.
      source: Source of the example.
    """
    place = place_of(source.store)
    if look.unreadable or place is None:
        return PlacedTarget()
    size = look.height, look.width
    try:
        whole = (0, 0, look.width, look.height)
        placed = place(target, Placed(size, whole, size, look.orientation))
    except UnreadableError as error:
        return PlacedTarget(problem=str(error))
    if NUM_BOXES in source.facts:
        seen = source.image_shape[:2]
        box = (0, 0, look.width, look.height)
        if size != seen:
            box = source.fit.centre_box(*size, seen[0])
        left = place(target, Placed(size, box, seen, look.orientation))
        num = len(source.facts[NAMES])
        counts = [
            np.bincount(classes[~crowd], minlength=num)
            for classes, crowd in (
                (target.classes, target.crowd),
                (left["classes"], left["crowd"] | (left["classes"] < 0)),
            )
        ]
        return PlacedTarget(boxes=np.array(counts))
    if PIXEL_CLASSES not in source.facts:
        return PlacedTarget()
    return PlacedTarget(np.bincount(placed.ravel(), minlength=IGNORED + 1))
