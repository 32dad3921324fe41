"""`coco:FILE` or `coco:DIR`: images with boxes, in JSON files as COCO's instances.

A file is data that anybody may have written: bounded, and looked at value by value.
"""

import collections
import os
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from jaxtrain.config import DataConfig
from jaxtrain.data.image_files import Folder, shown
from jaxtrain.data.problems import Problems
from jaxtrain.data.read_files import read_file
from jaxtrain.data.stores import Opened
from jaxtrain.data.text import decode_user_text, nfc
from jaxtrain.errors import UserError
from jaxtrain.json_files.parse import parse
from jaxtrain.plugins.detection import coco_values, left_out
from jaxtrain.plugins.detection.box_lists import ListedImage, to_store
from jaxtrain.plugins.detection.coco_images import LISTS, ImageReader
from jaxtrain.plugins.detection.coco_layouts import find_files, root_of
from jaxtrain.plugins.detection.coco_values import Id
from jaxtrain.plugins.detection.left_out import LeftOut

# Categories at most: more than any set has, and less than fills the memory.
MAX_CATEGORIES = 100_000
# What some tools of Windows put before a text.


class Category(NamedTuple):
    """A class, as a file names it."""

    id: Id
    name: str


def open_coco(name: str, config: DataConfig) -> Opened:
    """Open images whose boxes one JSON file tells, or one of each split.

    Raises:
      UserError: a file cannot be read, or tells what cannot be used; one message has
        all of it.
    """
    place = os.path.expanduser(name)
    found = find_files(config.source, place)
    problems, counts = Problems(config.source), list[LeftOut]()
    parts = {one.split: read_lists(config.source, one.path, problems) for one in found}
    categories = {
        split: list(_categories(values["categories"], problems))
        for split, values in parts.items()
    }
    every = sorted({one for some in categories.values() for one in some}, key=_order)
    numbers = {one: i for i, one in enumerate(every)}
    root = os.path.expanduser(config.images_dir or root_of(place))
    folder, images = Folder(root, config), dict[str, list[ListedImage]]()
    for one in found:
        kinds = {kind.id: numbers[kind] for kind in categories[one.split]}
        values = parts.pop(one.split)
        part = ImageReader(config, folder, one, len(found) > 1, problems)
        images[one.split] = part.images(values, kinds)
        counts.append(part.counts)
    used = {box.kind for some in images.values() for x in some for box in x.boxes}
    _check_categories([every[i] for i in sorted(used)], problems)
    problems.check()
    names, ids = [shown(one.name) for one in every], [one.id for one in every]
    remarks = left_out.remarks_of(counts)
    # Files of results have numbers.
    whole = all(isinstance(id, int) for id in ids)
    told = [int(id) for id in ids] if whole else [*range(1, len(ids) + 1)]
    return to_store(config, root, images, names, told, problems, remarks)


def read_lists(
    source: str,
    path: str,
    problems: Problems | None = None,
    needed: Sequence[str] = LISTS,
) -> dict[str, list[Any]]:
    """Return the lists of a file.

    Args:
      source: What messages name first.
      path: Path of the file.
      problems: Takes what is to be said of the encoding.
      needed: Names of the lists that it must have.

    Raises:
      UserError: it cannot be read, or has not these lists.
    """
    data = read_file(os.fsencode(path))
    if isinstance(data, OSError):
        raise UserError(f"{source}: {shown(path)}: {data.strerror}")
    try:
        text = decode_user_text(data)
        # Python's own writer makes NaN of an area that is missing.
        values = parse(text.content, nan=True)
    except ValueError as error:
        raise UserError(f"{source}: {shown(path)} is no JSON: {error}") from None
    if problems is not None:
        problems.remarks += text.remarks(path)
    for name in needed:
        if not (isinstance(values, dict) and isinstance(values.get(name), list)):
            raise UserError(
                f"{source}: {shown(path)} has no list {name!r}: expected an object of "
                f"lists {', '.join(needed)}, as COCO's instances_train2017.json"
            )
    return {name: found for name, found in values.items() if isinstance(found, list)}


def _order(one: Category) -> tuple[bool, Any, str]:
    return isinstance(one.id, str), one.id, one.name


def _categories(values: list[Any], problems: Problems) -> Iterator[Category]:
    if len(values) > MAX_CATEGORIES:
        problems.add(f"{len(values):,} categories", f"give {MAX_CATEGORIES:,} at most")
        return
    seen = dict[Id, str]()
    for i, value in enumerate(values):
        where = f"categories[{i}]"
        id = problems.attempt(coco_values.id_of, value, "id", where=where)
        name = problems.attempt(coco_values.text, value, "name", where=where)
        if id is None or name is None:
            continue
        if seen.setdefault(id, name) != name:
            problems.add(f"the id {id} a second time", "give each an id", where)
            continue
        yield Category(id, nfc(name))


def _check_categories(used: list[Category], problems: Problems) -> None:
    """Refuse two classes of one id or of one name, of those that have boxes."""
    for key, what in ((0, "the id"), (1, "the name")):
        numbers = collections.Counter(one[key] for one in used)
        twice = [value for value, number in numbers.items() if number > 1]
        if twice:
            problems.add(
                f"{what} {shown(str(twice[0]))} is that of several categories",
                "give each category an id and a name of its own, in all files the same",
            )
