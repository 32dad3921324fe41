"""Store of image files with boxes, padded to a fixed number of boxes per image."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxtrain.data.boxes import MIN_AREA, NAMES, NUM_BOXES, PADDING, StoredBoxes
from jaxtrain.data.decode_limits import UnreadableError
from jaxtrain.data.files import StoredFile
from jaxtrain.data.image_files import FileNames, shown
from jaxtrain.data.read_files import read_unless_large
from jaxtrain.data.stores import Remark
from jaxtrain.data.target_transform import ResizedCrop
from jaxtrain.plugins.segmentation import upright


@dataclass(frozen=True)
class BoxFileStore:
    """Store of image files with boxes.

    Attributes:
      boxes: Boxes of all images, concatenated, float32 (boxes, 4).
      classes: Class of each box, int32 (boxes,).
      crowd: Whether each box is a crowd, bool (boxes,).
      ends: Cumulative sum of the number of boxes per image, (N,).
      sizes: Height and width of each image, (N, 2); None for normalized boxes (0 to 1).
      facts: Metadata of the data set, with the keys of `jaxtrain.data.boxes`.
      drawn_on_stored: Whether boxes refer to the stored pixels, before the EXIF
        orientation is applied.
      remarks: Remarks on the data set for the user.
    """

    root: str
    file_names: FileNames
    boxes: np.ndarray
    classes: np.ndarray
    crowd: np.ndarray
    ends: np.ndarray
    sizes: np.ndarray | None
    facts: Mapping[str, Any]
    remarks: tuple[Remark, ...] = ()
    drawn_on_stored: bool = False

    # Sizes vary, and greyscale images are decoded as RGB.
    image_shape = (None, None, 3)

    def strata(self, indices: np.ndarray) -> np.ndarray:
        """Whether each image has a box of each class, bool (n, classes)."""
        image = np.repeat(np.arange(len(self.ends)), np.diff(self.ends, prepend=0))
        present = np.zeros((len(self.ends), len(self.facts[NAMES])), bool)
        present[image, self.classes] = True
        return present[indices]

    def read(self, indices: np.ndarray) -> tuple[list[StoredFile], list[StoredBoxes]]:
        root = os.fsencode(self.root)
        paths = [os.path.join(root, self.file_names[i]) for i in indices.tolist()]
        files = [StoredFile(shown(path), read_unless_large(path)) for path in paths]
        return files, [self._stored(i) for i in indices.tolist()]

    def transform_target(
        self, target: StoredBoxes | None, crop: ResizedCrop
    ) -> dict[str, Any]:
        """Return the padded boxes of an image, in pixels of the resized image.

        Returns:
          `boxes`, float32 (num_boxes, 4); `classes`, int32 (num_boxes,), -1 for
          padding; `crowd`, bool (num_boxes,); and `size`, the height and width of the
          image, float32 (2,).

        Raises:
          UnreadableError: The image size differs from the size in the annotations.
        """
        num = self.facts[NUM_BOXES]
        if target is None:
            return padded(np.zeros((0, 4)), np.zeros(0), np.zeros(0), crop.size, num)
        boxes, size = target.boxes.astype(np.float64), crop.image_size
        if self.drawn_on_stored:
            size = upright.stored_size(size, crop.orientation)
        height, width = size
        if target.size is None:
            boxes = boxes * (width, height, width, height)
        elif target.size != size:
            expected_size, actual_size = (
                f"{target.size[1]}x{target.size[0]}",
                f"{width}x{height}",
            )
            hint = upright.exif_hint(crop.image_size, target.size, crop.orientation)
            raise UnreadableError(
                f"the image has {actual_size} pixels, but the boxes are for an image "
                f"of {expected_size}{hint}"
            )
        if self.drawn_on_stored:
            boxes = upright.upright_boxes(boxes, size, crop.orientation)
        moved = crop.points(boxes.reshape(-1, 2, 2)).reshape(-1, 4)
        return padded(moved, target.classes, target.crowd, crop.size, num)

    def _stored(self, index: int) -> StoredBoxes:
        here = slice(self.ends[index - 1] if index else 0, self.ends[index])
        size = None
        if self.sizes is not None:
            height, width = self.sizes[index].tolist()
            size = height, width
        return StoredBoxes(self.boxes[here], self.classes[here], self.crowd[here], size)


def padded(
    boxes: np.ndarray,
    classes: np.ndarray,
    crowd: np.ndarray,
    size: tuple[int, int],
    num: int,
) -> dict[str, Any]:
    """Return boxes clipped to their image and padded to a fixed number.

    Args:
      boxes: Boxes in pixels of the image, (n, 4); boxes whose clipped area is below
        `MIN_AREA` are dropped.
      classes: Class of each box, (n,).
      crowd: Whether each box is a crowd, (n,).
      size: Height and width of the image.
      num: Number of boxes after padding, at least n.
    """
    height, width = size
    boxes = np.clip(boxes, 0, np.array([width, height, width, height]))
    stays = np.prod(boxes[:, 2:] - boxes[:, :2], axis=-1) >= MIN_AREA
    left = int(stays.sum())
    target = {
        "boxes": np.zeros((num, 4), np.float32),
        "classes": np.full(num, PADDING, np.int32),
        "crowd": np.zeros(num, bool),
        "size": np.array(size, np.float32),
    }
    target["boxes"][:left] = boxes[stays]
    target["classes"][:left] = classes[stays]
    target["crowd"][:left] = crowd[stays]
    return target
