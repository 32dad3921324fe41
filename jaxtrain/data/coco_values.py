"""Values of a file as COCO's instances: what may stand in an image and in a box."""

import os
from typing import Any

from jaxtrain.data.box_lists import MAX_SIDE, ListedBox, ListedImage, corners
from jaxtrain.data.image_files import OUTSIDE, encoded_name, shown
from jaxtrain.data.problems import UnusableError


def image(value: Any, where: str) -> tuple[int, ListedImage]:
    """Return the id of an image, and the image, without boxes yet."""
    name = os.path.normpath(encoded_name(text(value, "file_name")))
    if name.startswith((b"/", b"../")) or name in (b"..", b"."):
        raise UnusableError(f"{shown(name)} leads out of the folder", OUTSIDE)
    height, width = whole(value, "height"), whole(value, "width")
    if not (0 < height <= MAX_SIDE and 0 < width <= MAX_SIDE):
        raise UnusableError(f"an image of {width}x{height} pixels", "mend its size")
    return whole(value, "id"), ListedImage(where, name, (height, width), [])


def add_box(
    value: Any,
    images: dict[int, ListedImage],
    numbers: dict[int, int],
    seen: set[int],
) -> None:
    """Put the box of an annotation to its image."""
    number, kind = whole(value, "image_id"), whole(value, "category_id")
    if number not in images:
        fix = "add it to images, or take the box out"
        raise UnusableError(f"there is no image of the id {number}", fix)
    if kind not in numbers:
        fix = "add it to categories, or take the box out"
        raise UnusableError(f"there is no category of the id {kind}", fix)
    if "id" in value:
        id = whole(value, "id")
        if id in seen:
            fix = "give each annotation an id"
            raise UnusableError(f"the id {id} a second time", fix)
        seen.add(id)
    box = value.get("bbox")
    if not (isinstance(box, list) and len(box) == 4 and all(map(is_number, box))):
        raise UnusableError("bbox is no list of four numbers", "give x, y, w, h")
    crowd = value.get("iscrowd", 0)
    if crowd not in (0, 1):
        raise UnusableError(f"iscrowd is {shown(repr(crowd)[:40])}", "give 0 or 1")
    left, top, width, height = map(float, box)
    size = images[number].size
    assert size is not None
    one = ListedBox(corners(left, top, width, height, size), numbers[kind], bool(crowd))
    images[number].boxes.append(one)


def is_number(value: Any) -> bool:
    """Whether a value is a number that may stand in a box."""
    return type(value) in (int, float) and abs(value) < 1e30


def whole(value: Any, field: str) -> int:
    """Return a whole number of an object.

    Raises:
      UnusableError: there is none.
    """
    found = value.get(field) if isinstance(value, dict) else None
    if type(found) is not int or abs(found) >= 2**63:
        raise UnusableError(f"{field} is no whole number", f"give it a number {field}")
    return found


def text(value: Any, field: str) -> str:
    """Return a text of an object that may be a name of a file.

    Raises:
      UnusableError: there is none.
    """
    found = value.get(field) if isinstance(value, dict) else None
    if not isinstance(found, str) or not found or "\0" in found:
        raise UnusableError(f"{field} is no text", f"give it a {field}")
    try:
        encoded_name(found)
    except UnicodeEncodeError:
        raise UnusableError(f"{field} is no text", f"give it a {field}") from None
    return found
