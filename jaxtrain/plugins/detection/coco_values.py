"""Validation of the images and annotations of a COCO instances file."""

import math
import re
from typing import Any, NamedTuple

from jaxtrain.data.image_files import encoded_name, shown
from jaxtrain.data.problems import UnusableError
from jaxtrain.plugins.detection import coco_segmentation
from jaxtrain.plugins.detection.box_lists import MAX_SIDE

# Ids are integers or strings; `id_of` converts strings of digits to integers.
Id = int | str
NUMBER = re.compile(r"-?\d{1,18}(\.0+)?")
# Maximum length of a non-numeric id.
MAX_LETTERS = 200
SIZE = re.compile(r"\d{1,9}(\.0+)?")


class NamedImage(NamedTuple):
    """An entry of `images`; `size` (height, width) is None if missing or invalid."""

    id: Id
    name: bytes
    size: tuple[int, int] | None


class Annotation(NamedTuple):
    """An entry of `annotations`: a box.

    Attributes:
      image: Image id.
      category: Category id.
      box: Left, top, width and height in pixels.
      crowd: Whether the box covers a crowd of objects (`iscrowd`).
    """

    image: Id
    category: Id
    box: coco_segmentation.Bounds
    crowd: bool


def image(value: Any) -> NamedImage:
    """Parse an entry of `images`.

    Raises:
      UnusableError: The entry has no valid id or file name.
    """
    name = encoded_name(text(value, "file_name"))
    sides = [value.get(field) for field in ("height", "width")]
    height, width = (
        int(float(side)) if SIZE.fullmatch(str(side)) else 0 for side in sides
    )
    there = 0 < height <= MAX_SIDE and 0 < width <= MAX_SIDE
    return NamedImage(id_of(value, "id"), name, (height, width) if there else None)


def annotation(value: Any) -> Annotation:
    """Parse an annotation; a missing `bbox` is computed from its `segmentation`.

    Raises:
      UnusableError: An id, the box or `iscrowd` is invalid.
    """
    number, kind = id_of(value, "image_id"), id_of(value, "category_id")
    given = value.get("bbox")
    if given is None or given == []:
        box = coco_segmentation.bounds(value.get("segmentation"))
    else:
        box = _box(given)
    if box is None:
        raise UnusableError(
            "neither bbox nor segmentation is valid",
            "set bbox to [x, y, width, height]",
            "without a bbox",
        )
    crowd = str(value.get("iscrowd") or 0).lower()
    if crowd not in ("0", "1", "true", "false"):
        told = f"iscrowd is {shown(repr(value['iscrowd'])[:40])}"
        raise UnusableError(
            told, "set iscrowd to 0 or 1", "whose iscrowd is not 0 or 1"
        )
    return Annotation(number, kind, box, crowd in ("1", "true"))


def _box(value: Any) -> coco_segmentation.Bounds:
    numbers = [_number(x) for x in value] if isinstance(value, list) else []
    if len(numbers) != 4 or not all(map(math.isfinite, numbers)):
        raise UnusableError(
            "bbox is not a list of four numbers",
            "set bbox to [x, y, width, height]",
            "whose bbox is not a list of four numbers",
        )
    left, top, width, height = numbers
    return left, top, width, height


def _number(value: Any) -> float:
    """Parse a coordinate; invalid coordinates become NaN."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return math.nan
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return math.nan
    return found if abs(found) < 1e30 else math.nan


def id_of(value: Any, field: str) -> Id:
    """Return the id in a field of a JSON object; a string of digits becomes an integer.

    Raises:
      UnusableError: The field is missing, or is not a valid id.
    """
    found = value.get(field) if isinstance(value, dict) else None
    told = str(found).strip() if type(found) in (int, float, str) else ""
    if NUMBER.fullmatch(told):
        return int(told.partition(".")[0])
    if not isinstance(found, str) or not 0 < len(told) <= MAX_LETTERS:
        fix = f"add an integer {field}"
        raise UnusableError(f"{field} is not an integer", fix, f"without {field}")
    return shown(told.encode("utf-8", "backslashreplace"))


def text(value: Any, field: str) -> str:
    """Return a string field of a JSON object.

    Raises:
      UnusableError: The field is missing, not a string, or not a valid file name.
    """
    found = value.get(field) if isinstance(value, dict) else None
    wrong = UnusableError(f"{field} is not a string", f"add a {field}", f"no {field}")
    if not isinstance(found, str) or not found or "\0" in found:
        raise wrong
    try:
        encoded_name(found)
    except UnicodeEncodeError:
        raise wrong from None
    return found
