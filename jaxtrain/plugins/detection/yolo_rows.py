"""Rows of YOLO label files: boxes or polygons, with optional confidence."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from jaxtrain.data.image_files import shown
from jaxtrain.data.problems import UnusableError
from jaxtrain.plugins.detection.box_lists import MEND, ListedBox, corners

LINE = (
    "expected CLASS X Y WIDTH HEIGHT, or CLASS and the points of a polygon, as "
    "fractions of the image from 0 to 1"
)
BOX, TRIANGLE = 4, 6
# Fraction of the image size by which a rotated box may exceed the image. Larger
# coordinates are rejected, because they are probably in pixels.
FARTHEST = 1.0


class YoloRow(NamedTuple):
    """A parsed row of a label file.

    Attributes:
      box: Box of the row; the bounding box of a polygon.
      unread: Description of the ignored columns, or empty.
    """

    box: ListedBox
    unread: str = ""


def num_keypoints(values: dict[str, Any]) -> int:
    """Return the number of keypoint columns, from `kpt_shape` in data.yaml, or 0."""
    shape = values.get("kpt_shape")
    if isinstance(shape, list) and all(type(n) is int and 0 < n < 10**4 for n in shape):
        return math.prod(shape)
    return 0


def read_row(fields: Sequence[str], num_names: int, keypoints: int) -> YoloRow:
    """Parse a row of a label file.

    The class index is followed by the four coordinates of a box, or by the six or more
    coordinates (an even number) of a polygon. A confidence at the end is ignored.

    Args:
      fields: Fields of the row.
      num_names: Number of classes.
      keypoints: Number of keypoint columns after the box.

    Raises:
      UnusableError: The row is not a valid box or polygon.
    """
    try:
        kind, numbers = float(fields[0]), [float(text) for text in fields[1:]]
        if not kind.is_integer():
            raise ValueError
    except (ValueError, IndexError):
        raise _no_box(fields) from None
    kind, unread = int(kind), ""
    if keypoints:
        if len(numbers) not in (BOX + keypoints, BOX + keypoints + 1):
            raise _no_box(fields)
        numbers, unread = numbers[:BOX], "key points"
    elif len(numbers) == BOX + 1 or (len(numbers) > TRIANGLE and len(numbers) % 2):
        *numbers, _ = numbers
        unread = "the last column, a confidence"
    if len(numbers) != BOX and len(numbers) < TRIANGLE:
        raise _no_box(fields)
    if not 0 <= kind < num_names:
        raise UnusableError(
            f"the class {kind} does not exist",
            f"give a number from 0 to {num_names - 1}, or add names to data.yaml",
        )
    if len(numbers) > BOX:
        return YoloRow(ListedBox(_bounds(numbers), kind), unread)
    x, y, width, height = numbers
    box = corners(x - width / 2, y - height / 2, width, height)
    return YoloRow(ListedBox(box, kind), unread)


def _no_box(fields: Sequence[str]) -> UnusableError:
    return UnusableError(f"{shown(' '.join(fields)[:60])!r} is not a box", LINE)


def _bounds(numbers: Sequence[float]) -> tuple[float, float, float, float]:
    """Return the bounding box of a polygon, clipped to its image."""
    if not all(map(math.isfinite, numbers)):
        raise UnusableError("a box with non-finite coordinates", MEND)
    if min(numbers) < -FARTHEST or max(numbers) > 1 + FARTHEST:
        raise UnusableError(
            f"a polygon with coordinates from {min(numbers):g} to {max(numbers):g} is "
            "outside the image",
            MEND,
        )
    inside = [min(max(number, 0.0), 1.0) for number in numbers]
    left, top = min(inside[::2]), min(inside[1::2])
    return corners(left, top, max(inside[::2]) - left, max(inside[1::2]) - top)
