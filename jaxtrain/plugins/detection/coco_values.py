"""Values of a file as COCO's instances: what may stand in an image and in a box."""

import math
import re
from typing import Any, NamedTuple

from jaxtrain.data.image_files import encoded_name, shown
from jaxtrain.data.problems import UnusableError
from jaxtrain.plugins.detection import coco_segmentation
from jaxtrain.plugins.detection.box_lists import MAX_SIDE

# An id: some tools write numbers as texts, or texts that are none.
Id = int | str
NUMBER = re.compile(r"-?\d{1,18}(\.0+)?")
# Letters of an id that is no number, at most.
MAX_LETTERS = 200
SIZE = re.compile(r"\d{1,9}(\.0+)?")


class NamedImage(NamedTuple):
    """An image of a list: its id, its name there, its height and width if they are."""

    id: Id
    name: bytes
    size: tuple[int, int] | None


class Annotation(NamedTuple):
    """A box of a list: the ids of its image and category, left, top, width, height."""

    image: Id
    category: Id
    box: coco_segmentation.Bounds
    crowd: bool


def image(value: Any) -> NamedImage:
    """Read an image; it has no size where the list has none that could be."""
    name = encoded_name(text(value, "file_name"))
    sides = [value.get(field) for field in ("height", "width")]
    height, width = (
        int(float(side)) if SIZE.fullmatch(str(side)) else 0 for side in sides
    )
    there = 0 < height <= MAX_SIDE and 0 < width <= MAX_SIDE
    return NamedImage(id_of(value, "id"), name, (height, width) if there else None)


def annotation(value: Any) -> Annotation:
    """Read a box; one that is not there is that of its segmentation."""
    number, kind = id_of(value, "image_id"), id_of(value, "category_id")
    given = value.get("bbox")
    if given is None or given == []:
        box = coco_segmentation.bounds(value.get("segmentation"))
    else:
        box = _box(given)
    if box is None:
        raise UnusableError(
            "it has no bbox, nor a segmentation", "give x, y, w, h", "without a bbox"
        )
    crowd = str(value.get("iscrowd") or 0).lower()
    if crowd not in ("0", "1", "true", "false"):
        told = f"iscrowd is {shown(repr(value['iscrowd'])[:40])}"
        raise UnusableError(told, "give 0 or 1", "whose iscrowd is not 0 or 1")
    return Annotation(number, kind, box, crowd in ("1", "true"))


def _box(value: Any) -> coco_segmentation.Bounds:
    numbers = [_number(x) for x in value] if isinstance(value, list) else []
    if len(numbers) != 4 or not all(map(math.isfinite, numbers)):
        raise UnusableError(
            "bbox is no list of four numbers",
            "give x, y, w, h",
            "whose bbox is no list of four numbers",
        )
    left, top, width, height = numbers
    return left, top, width, height


def _number(value: Any) -> float:
    """Number that may stand in a box; NaN if it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return math.nan
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return math.nan
    return found if abs(found) < 1e30 else math.nan


def id_of(value: Any, field: str) -> Id:
    """Id of an object: a whole number, also if it is written as a text, or a text.

    Raises:
      UnusableError: It has none.
    """
    found = value.get(field) if isinstance(value, dict) else None
    told = str(found).strip() if type(found) in (int, float, str) else ""
    if NUMBER.fullmatch(told):
        return int(told.partition(".")[0])
    if not isinstance(found, str) or not 0 < len(told) <= MAX_LETTERS:
        fix = f"give it a number {field}"
        raise UnusableError(f"{field} is no whole number", fix, f"without {field}")
    return shown(told.encode("utf-8", "backslashreplace"))


def text(value: Any, field: str) -> str:
    """Return a text of an object that may be a name of a file.

    Raises:
      UnusableError: there is none.
    """
    found = value.get(field) if isinstance(value, dict) else None
    wrong = UnusableError(f"{field} is no text", f"give it a {field}", f"no {field}")
    if not isinstance(found, str) or not found or "\0" in found:
        raise wrong
    try:
        encoded_name(found)
    except UnicodeEncodeError:
        raise wrong from None
    return found
