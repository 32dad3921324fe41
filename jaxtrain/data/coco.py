"""`coco:FILE` or `coco:DIR`: images with boxes, in JSON files as COCO's instances.

A file is data that anybody may have written: bounded, and looked at value by value.
"""

import collections
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from jaxtrain.config import DataConfig
from jaxtrain.data import coco_values
from jaxtrain.data.box_lists import ListedImage, to_store
from jaxtrain.data.classes import SPLITS
from jaxtrain.data.image_files import shown
from jaxtrain.data.problems import Problems
from jaxtrain.data.read_files import read_file
from jaxtrain.data.stores import Opened
from jaxtrain.data.text import decode_user_text, nfc
from jaxtrain.errors import UserError
from jaxtrain.json_files.parse import parse

LISTS = ("images", "annotations", "categories")
# In DIR/annotations: the split, and what else its name has, such as a year.
INSTANCES = re.compile(r"instances_((train|val|test)[A-Za-z0-9_-]*)\.json")
LAYOUT = "annotations/instances_train*.json and, with splits, _val*.json, _test*.json"
# Categories at most: more than any set has, and less than fills the memory.
MAX_CATEGORIES = 100_000


class CocoFile(NamedTuple):
    """A file of a split.

    Attributes:
      split: Name of the split.
      path: Place of the file.
      places: Folders that its images may lie in, as seen from the folder of all.
    """

    split: str
    path: str
    places: tuple[str, ...]


class Category(NamedTuple):
    """A class, as a file names it."""

    id: int
    name: str


def open_coco(name: str, config: DataConfig) -> Opened:
    """Open images whose boxes one JSON file tells, or one of each split.

    Raises:
      UserError: a file cannot be read, or tells what cannot be used; one message has
        all of it.
    """
    place = os.path.expanduser(name)
    found = _files(config.source, place)
    problems = Problems(config.source)
    parts = {one.split: _read(config.source, one.path, problems) for one in found}
    categories = {
        split: list(_categories(values["categories"], problems))
        for split, values in parts.items()
    }
    every = sorted({one for some in categories.values() for one in some})
    for key, what in ((0, "the id"), (1, "the name")):
        twice = _twice([one[key] for one in every])
        if twice:
            problems.add(
                f"{what} {shown(str(twice[0]))} is that of several categories",
                "give each category an id and a name of its own, in all files the same",
            )
    problems.check()
    numbers = {one.id: i for i, one in enumerate(every)}
    folder, images = config.images_dir, dict[str, list[ListedImage]]()
    root = os.path.expanduser(folder) if folder is not None else _root(place)
    for one in found:
        values, within = parts.pop(one.split), one.places
        listed = list(_images(values, numbers, problems, len(found) > 1 and one.path))
        first = next((image.path for image in listed), b"")
        chosen = b"" if folder is not None else _place(root, within, first)
        images[one.split] = [
            image._replace(path=os.path.join(chosen, image.path)) for image in listed
        ]
    names, ids = [one.name for one in every], [one.id for one in every]
    return to_store(config, root, images, [*map(shown, names)], ids, problems)


def _files(source: str, place: str) -> list[CocoFile]:
    """Return the files of a set, that of the training split first."""
    if not os.path.isdir(place):
        year = INSTANCES.fullmatch(os.path.basename(place))
        return [CocoFile("train", place, _places(year[1] if year else "", "train"))]
    folder, found = os.path.join(place, "annotations"), dict[str, CocoFile]()
    there = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    for file in there:
        match = INSTANCES.fullmatch(file)
        if match is None:
            continue
        split, path = SPLITS[match[2]], os.path.join(folder, file)
        if split in found:
            raise UserError(
                f"{source}: {shown(found[split].path)} and {shown(path)} are both the "
                f"{split} split: move one away, or name one file: coco:FILE"
            )
        found[split] = CocoFile(split, path, _places(match[1], match[2]))
    if "train" not in found:
        raise UserError(
            f"{source}: expected {LAYOUT}; found {shown(', '.join(there)) or 'none'}"
        )
    return [found[split] for split in dict.fromkeys(SPLITS.values()) if split in found]


def _root(place: str) -> str:
    """Return the folder of a set, of which the images lie somewhere below."""
    if os.path.isdir(place):
        return place
    folder = os.path.dirname(place) or "."
    beside = os.path.basename(os.path.abspath(folder)) == "annotations"
    return os.path.join(folder, os.pardir) if beside else folder


def _places(year: str, split: str) -> tuple[str, ...]:
    """Return the folders that the images of a split may lie in, by their usual names.

    Args:
      year: Split and what follows it in the name of the file, such as train2017.
    """
    names = [name for name in (year, split) if name]
    return (*names, *(f"images/{name}" for name in names), "images", "")


def _place(root: str, places: Sequence[str], first: bytes) -> bytes:
    """Return the folder that has the first image; if none has, the folder of all."""
    for place in map(os.fsencode, places):
        if os.path.isfile(os.path.join(os.fsencode(root), place, first)):
            return place
    return b""


def _read(source: str, path: str, problems: Problems) -> dict[str, list[Any]]:
    """Return the lists of a file.

    Raises:
      UserError: it cannot be read, or has not these lists.
    """
    data = read_file(os.fsencode(path))
    if isinstance(data, OSError):
        raise UserError(f"{source}: {shown(path)}: {data.strerror}")
    try:
        text = decode_user_text(data)
        values = parse(text.content)
    except ValueError as error:
        raise UserError(f"{source}: {shown(path)} is no JSON: {error}") from None
    problems.remarks += text.remarks(path)
    for name in LISTS:
        if not (isinstance(values, dict) and isinstance(values.get(name), list)):
            raise UserError(
                f"{source}: {shown(path)} has no list {name!r}: expected an object of "
                f"lists {', '.join(LISTS)}, as COCO's instances_train2017.json"
            )
    return {name: values[name] for name in LISTS}


def _categories(values: list[Any], problems: Problems) -> Iterator[Category]:
    if len(values) > MAX_CATEGORIES:
        problems.add(f"{len(values):,} categories", f"give {MAX_CATEGORIES:,} at most")
        return
    seen = set[int]()
    for i, value in enumerate(values):
        where = f"categories[{i}]"
        id = problems.attempt(coco_values.whole, value, "id", where=where)
        name = problems.attempt(coco_values.text, value, "name", where=where)
        if id is None or name is None:
            continue
        if id in seen:
            problems.add(f"the id {id} a second time", "give each an id", where)
            continue
        seen.add(id)
        yield Category(id, nfc(name))


def _images(
    values: dict[str, list[Any]],
    numbers: dict[int, int],
    problems: Problems,
    path: str | bool,
) -> Iterator[ListedImage]:
    """Yield the images of a file with their boxes; what is wrong goes to `problems`.

    Args:
      values: Lists of the file.
      numbers: Id of a category -> number of its class.
      problems: Takes what is wrong.
      path: Name of the file for messages, where there are several.
    """
    of = f"{os.path.basename(path)}, " if isinstance(path, str) else ""
    found: dict[int, ListedImage] = {}
    names = dict[bytes, str]()
    for i, value in enumerate(values["images"]):
        where = f"{of}images[{i}]"
        read = problems.attempt(coco_values.image, value, where, where=where)
        if read is None:
            continue
        id, image = read
        fix = "give each image an id, and list it once"
        if id in found:
            problems.add(f"the id {id} a second time", fix, where)
        elif image.path in names:
            first = names[image.path]
            problems.add(f"{shown(image.path)} is {first} already", fix, where)
        else:
            found[id] = image
            names[image.path] = where
    seen = set[int]()
    for i, value in enumerate(values["annotations"]):
        where = f"{of}annotations[{i}]"
        problems.attempt(coco_values.add_box, value, found, numbers, seen, where=where)
    yield from found.values()


def _twice(values: list[Any]) -> list[Any]:
    return [one for one, num in collections.Counter(values).items() if num > 1]
