"""EXIF rotation of masks and boxes that were drawn on the stored pixels."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from jaxtrain.config import DataConfig
from jaxtrain.data import files
from jaxtrain.data.decode_limits import UnreadableError
from jaxtrain.data.files import FIRST_TURNED
from jaxtrain.data.stores import Remark

# Value of `data.boxes_drawn_on`, and title of the remark that `remarks_on` returns.
STORED, TITLE = "stored", "rotated by EXIF"
# Maximum number of images that `remarks_on` checks.
NUM_LOOKED = 100
READ = 10


class _Readable(Protocol):
    def read(self, indices: np.ndarray) -> tuple[Any, Any]: ...


def stored_size(size: tuple[int, int], orientation: int) -> tuple[int, int]:
    """Swap height and width if the EXIF orientation rotates the image by 90 degrees."""
    height, width = size
    return (width, height) if orientation >= FIRST_TURNED else size


def upright_pixels(array: np.ndarray, orientation: int) -> np.ndarray:
    """Apply an EXIF orientation to an array (H, W, ...) of stored pixels."""
    if orientation >= FIRST_TURNED:
        array = array.swapaxes(0, 1)
    if orientation in (3, 4, 7, 8):
        array = array[::-1]
    if orientation in (2, 3, 6, 7):
        array = array[:, ::-1]
    return array


def upright_boxes(
    boxes: np.ndarray, size: tuple[float, float], orientation: int
) -> np.ndarray:
    """Map boxes on the stored pixels to the upright image.

    Args:
      boxes: Left, top, right and bottom, (n, 4).
      size: Height and width of the stored image; (1, 1) for normalized boxes.
      orientation: EXIF orientation, 1 to 8.
    """
    (height, width), points = size, boxes.reshape(-1, 2, 2)
    if orientation >= FIRST_TURNED:
        points, height, width = points[..., ::-1], width, height
    x, y = points[..., 0], points[..., 1]
    if orientation in (2, 3, 6, 7):
        x = width - x
    if orientation in (3, 4, 7, 8):
        y = height - y
    corners = x.min(-1), y.min(-1), x.max(-1), y.max(-1)
    return np.stack(corners, axis=-1) if len(boxes) else boxes


def stored_boxes(
    boxes: np.ndarray, size: tuple[float, float], orientation: int
) -> np.ndarray:
    """Map boxes on the upright image to the stored pixels.

    Args:
      boxes: Left, top, right and bottom, (n, 4).
      size: Height and width of the upright image; (1, 1) for normalized boxes.
      orientation: EXIF orientation, 1 to 8.
    """
    back = {6: 8, 8: 6}.get(orientation, orientation)
    return upright_boxes(boxes, size, back)


def exif_hint(size: tuple[int, int], drawn: tuple[int, int], orientation: int) -> str:
    """Hint on EXIF, to append to the message that targets and image differ in size.

    Args:
      size: Height and width of the upright image.
      drawn: Height and width of the image on which the targets were drawn.
      orientation: EXIF orientation of the image, 1 to 8.
    """
    if orientation == 1:
        return ""
    hint = f"; EXIF rotates it (orientation {orientation})"
    for option, known in (("upright", size), (STORED, stored_size(size, orientation))):
        if drawn == known:
            return f"{hint}: set data.boxes_drawn_on = {option}"
    return hint


def remarks_on(
    config: DataConfig, store: _Readable, examples: np.ndarray, targets: str
) -> tuple[Remark, ...]:
    """Warn of EXIF-rotated images with targets if `data.boxes_drawn_on` is not set.

    Data sets do not record whether targets were drawn on the upright images. Only some
    images are checked; `data --check` checks all.

    Args:
      config: Data section of the config.
      store: Store of the images.
      examples: Indices of the examples with targets.
      targets: Word for the targets in the message: boxes or masks.
    """
    if config.boxes_drawn_on is not None or not len(examples):
        return ()
    num = min(NUM_LOOKED, len(examples))
    some = examples[np.arange(num) * len(examples) // num]
    turned = [
        name
        for start in range(0, num, READ)
        for name in _rotated_names(store.read(some[start : start + READ])[0], config)
    ]
    if not turned:
        return ()
    text = (
        f"{len(turned)} of {num} checked images, such as {turned[0]}: {targets} are "
        "assumed to be drawn on the upright image. Set data.boxes_drawn_on = stored if "
        "they were drawn on the stored pixels, else upright"
    )
    return (Remark(TITLE, text, serious=True),)


def _rotated_names(images: Sequence[Any], config: DataConfig) -> list[str]:
    found = []
    for image in images:
        try:
            if files.orientation_of(image, config.max_pixels) != 1:
                found.append(image.name)
        except UnreadableError:  # Reported when the example is read.
            continue
    return found
