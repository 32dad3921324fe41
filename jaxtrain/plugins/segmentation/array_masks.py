"""In-memory masks: arrays of class indices."""

from dataclasses import dataclass

import numpy as np

from jaxtrain.config import DataConfig
from jaxtrain.data.pixel_classes import IGNORED, PIXEL_CLASSES
from jaxtrain.data.stores import ArrayStore
from jaxtrain.plugins.segmentation.masked_store import MaskedStore
from jaxtrain.plugins.segmentation.pixel_classes import PixelClasses, StoredMask


@dataclass(frozen=True)
class ArrayMasks:
    """Masks of a data set, uint8 (N, H, W)."""

    masks: np.ndarray

    def read(self, indices: np.ndarray) -> list[StoredMask]:
        return list(self.masks[indices])


def checked(name: str, masks: np.ndarray) -> np.ndarray:
    """Validate masks, and convert them to uint8.

    Args:
      name: Name of the array in messages.
      masks: Class indices or `IGNORED`, any integer dtype, (N, H, W).

    Raises:
      ValueError: A value is neither a class index nor `IGNORED`.
    """
    if masks.min() < 0 or masks.max() > IGNORED:
        raise ValueError(
            f"{name} has values from {masks.min()} to {masks.max()}: expected class "
            f"indices from 0 to {IGNORED - 1}, and {IGNORED} for ignored pixels"
        )
    return masks.astype(np.uint8)


def with_masks(images: ArrayStore, masks: np.ndarray, digest: str) -> MaskedStore:
    """Combine images with masks; the names of the classes are "0", "1" and so on.

    Raises:
      ValueError: No class but 0 occurs in the masks.
    """
    counted = masks[masks != IGNORED]
    num = int(counted.max()) + 1 if counted.size else 0
    if num < 2:
        raise ValueError(
            "label has no class other than 0: expected two or more classes"
        )
    classes = PixelClasses(tuple(map(str, range(num))))
    facts = {PIXEL_CLASSES: classes.names, "digest": digest}
    pixels = DataConfig.max_pixels
    return MaskedStore(images, ArrayMasks(masks), classes, pixels, facts)
