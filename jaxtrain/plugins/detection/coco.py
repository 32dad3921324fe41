"""Data sources `coco:FILE` and `coco:DIR`: images with boxes in COCO instances JSON.

Files are untrusted: sizes are bounded, and each value is validated.
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

# Maximum number of categories, to bound memory.
MAX_CATEGORIES = 100_000


class Category(NamedTuple):
    """A category of a COCO file."""

    id: Id
    name: str


def open_coco(name: str, config: DataConfig) -> Opened:
    """Open images with boxes from one COCO JSON file, or from one file per split.

    Args:
      name: JSON file, or directory of the data set.
      config: `data` section of the config.

    Raises:
      UserError: A file cannot be read or is invalid; the message lists all problems.
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
    # COCO results require integer category ids: replace other ids with 1, 2, ...
    integer_ids = all(isinstance(id, int) for id in ids)
    result_ids = [int(id) for id in ids] if integer_ids else [*range(1, len(ids) + 1)]
    return to_store(config, root, images, names, result_ids, problems, remarks)


def read_lists(
    source: str,
    path: str,
    problems: Problems | None = None,
    needed: Sequence[str] = LISTS,
) -> dict[str, list[Any]]:
    """Return the top-level lists of a JSON file, as key -> list.

    Args:
      source: Data source, which prefixes messages.
      path: Path of the file.
      problems: Collector of remarks on the text encoding, or None.
      needed: Keys of the required lists.

    Raises:
      UserError: The file cannot be read, or lacks a required list.
    """
    data = read_file(os.fsencode(path))
    if isinstance(data, OSError):
        raise UserError(f"{source}: {shown(path)}: {data.strerror}")
    try:
        text = decode_user_text(data)
        # Allow NaN, which some tools write for a missing area.
        values = parse(text.content, nan=True)
    except ValueError as error:
        raise UserError(f"{source}: {shown(path)} is not JSON: {error}") from None
    if problems is not None:
        problems.remarks += text.remarks(path)
    for name in needed:
        if not (isinstance(values, dict) and isinstance(values.get(name), list)):
            raise UserError(
                f"{source}: {shown(path)} has no list {name!r}: expected a JSON object "
                f"with the lists {', '.join(needed)}, as in COCO's "
                "instances_train2017.json"
            )
    return {name: found for name, found in values.items() if isinstance(found, list)}


def _order(one: Category) -> tuple[bool, Any, str]:
    return isinstance(one.id, str), one.id, one.name


def _categories(values: list[Any], problems: Problems) -> Iterator[Category]:
    if len(values) > MAX_CATEGORIES:
        text = f"{len(values):,} categories, more than {MAX_CATEGORIES:,}"
        problems.add(text, "remove the unused categories")
        return
    seen = dict[Id, str]()
    for i, value in enumerate(values):
        where = f"categories[{i}]"
        id = problems.attempt(coco_values.id_of, value, "id", where=where)
        name = problems.attempt(coco_values.text, value, "name", where=where)
        if id is None or name is None:
            continue
        if seen.setdefault(id, name) != name:
            fix = "give each category a unique id"
            problems.add(f"the id {id} occurs twice", fix, where)
            continue
        yield Category(id, nfc(name))


def _check_categories(used: list[Category], problems: Problems) -> None:
    """Report duplicate ids or names among categories that have boxes."""
    for key, what in ((0, "the id"), (1, "the name")):
        numbers = collections.Counter(one[key] for one in used)
        twice = [value for value, number in numbers.items() if number > 1]
        if twice:
            problems.add(
                f"{what} {shown(str(twice[0]))} belongs to several categories",
                "give each category a unique id and name, the same in all files",
            )
