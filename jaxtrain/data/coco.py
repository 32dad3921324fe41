"""`coco:FILE` or `coco:DIR`: images with boxes, in JSON files as COCO's instances.

A file is data that anybody may have written: bounded, and looked at value by value.
"""

import collections
import os
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from jaxtrain.config import DataConfig
from jaxtrain.data import coco_values, files, left_out, upright
from jaxtrain.data.box_lists import ListedBox, ListedImage, to_store
from jaxtrain.data.coco_layouts import CocoFile, find_files, root_of
from jaxtrain.data.coco_paths import ImageFinder
from jaxtrain.data.coco_values import Id, NamedImage
from jaxtrain.data.files import UnreadableError
from jaxtrain.data.image_files import Folder, shown
from jaxtrain.data.left_out import LeftOut
from jaxtrain.data.problems import Problems, UnusableError
from jaxtrain.data.read_files import read_file, read_unless_large
from jaxtrain.data.stores import Opened
from jaxtrain.errors import UserError
from jaxtrain.json_files.parse import parse

LISTS = ("images", "annotations", "categories")
# Categories at most: more than any set has, and less than fills the memory.
MAX_CATEGORIES = 100_000
# What some tools of Windows put before a text.
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


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
    parts = {one.split: read_lists(config.source, one.path) for one in found}
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
        part = _Part(config, folder, one, len(found) > 1, problems)
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
    source: str, path: str, needed: Sequence[str] = LISTS
) -> dict[str, list[Any]]:
    """Return the lists of a file.

    Args:
      source: What messages name first.
      path: Path of the file.
      needed: Names of the lists that it must have.

    Raises:
      UserError: it cannot be read, or has not these lists.
    """
    data = read_file(os.fsencode(path))
    if isinstance(data, OSError):
        raise UserError(f"{source}: {shown(path)}: {data.strerror}")
    try:
        # Python's own writer makes NaN of an area that is missing.
        values = parse(data.removeprefix(BYTE_ORDER_MARK), nan=True)
    except ValueError as error:
        raise UserError(f"{source}: {shown(path)} is no JSON: {error}") from None
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
        yield Category(id, name)


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


class _Part:
    """Reads the images of one file with their boxes.

    Args:
      config: Config of the data.
      folder: Folder of all images.
      file: File of the split.
      named: Whether messages name the file, as there are several.
      problems: Takes what cannot be left out.

    Attributes:
      counts: What is left out.
    """

    def __init__(
        self,
        config: DataConfig,
        folder: Folder,
        file: CocoFile,
        named: bool,
        problems: Problems,
    ):
        self._config, self._folder = config, folder
        self._of = f"{os.path.basename(file.path)}, " if named else ""
        self._problems, self.counts = problems, LeftOut()
        places = file.places if config.images_dir is None else ("", *file.places)
        self._finder = ImageFinder(folder, places)

    def images(
        self, values: dict[str, list[Any]], kinds: dict[Id, int]
    ) -> list[ListedImage]:
        """Return the images of a file; too many that cannot be used are problems.

        Args:
          values: Lists of the file.
          kinds: Id of a category -> number of its class.
        """
        # None stands for an image that is left out.
        found: dict[Id, ListedImage | None] = {}
        first = dict[bytes, str]()
        for i, value in enumerate(values["images"]):
            self._add_image(value, f"{self._of}images[{i}]", found, first)
        seen = set[int]()
        for i, value in enumerate(values["annotations"]):
            self._add_box(value, f"{self._of}annotations[{i}]", found, kinds, seen)
        for title, name in ((left_out.IMAGES, LISTS[0]), (left_out.BOXES, LISTS[1])):
            num = len(values[name])
            self.counts.check(title, num, self._config, self._problems)
        return [one for one in found.values() if one is not None]

    def _add_image(
        self,
        value: Any,
        where: str,
        found: dict[Id, ListedImage | None],
        first: dict[bytes, str],
    ) -> None:
        attempt, title = self.counts.attempt, left_out.IMAGES
        read = attempt(title, coco_values.image, value, where=where)
        if read is None:
            return
        fix = "give each image an id, and list it once"
        if read.id in found:
            self._problems.add(f"the id {read.id} a second time", fix, where)
            return
        found[read.id] = image = attempt(
            title, self._listed, read, where, where=f"{where}, {shown(read.name)}"
        )
        if image is not None and image.path in first:
            told = f"{shown(image.path)} is {first[image.path]} already"
            self._problems.add(told, fix, where)
        elif image is not None:
            first[image.path] = where

    def _listed(self, image: NamedImage, where: str) -> ListedImage:
        """Return an image with the place and the size of its file.

        Raises:
          UnusableError: It is not there, or has no size.
        """
        path = self._finder.find(image.name)
        return ListedImage(where, path, image.size or self._size(path), [])

    def _size(self, path: bytes) -> tuple[int, int]:
        """Return the size of the pixels that boxes were drawn on, by the file."""
        place = os.path.join(os.fsencode(self._folder.root), path)
        try:
            file = files.open_file(read_unless_large(place), self._config.max_pixels)
        except UnreadableError as error:
            told = f"{shown(path)} has no size in the list, and is unreadable: {error}"
            raise UnusableError(told, "mend it", "without a size") from None
        size = file.height, file.width
        if self._config.boxes_drawn_on == upright.STORED:
            return upright.stored_size(size, file.orientation)
        return size

    def _add_box(
        self,
        value: Any,
        where: str,
        found: dict[Id, ListedImage | None],
        kinds: dict[Id, int],
        seen: set[int],
    ) -> None:
        title = left_out.BOXES
        read = self.counts.attempt(title, coco_values.annotation, value, where=where)
        if read is None:
            return
        if read.image not in found:
            self.counts.add(title, "of images that are not listed", where)
            return
        image = found[read.image]
        if image is None:  # It is left out with its boxes.
            return
        if read.category not in kinds:
            told, fix = f"there is no category of the id {read.category}", "add it"
            cause = "of categories that are not listed"
            defect = left_out.Defect(told, fix, where)
            self.counts.add_defect(title, cause, defect)
            return
        key = hash((str(value.get("id")), read))
        if "id" in value and key in seen:
            self.counts.add(title, "that are listed twice", where)
            return
        seen.add(key)
        assert image.size is not None
        corners = self.counts.cut(read.box, image.size, where)
        if corners is not None:
            box = ListedBox(corners, kinds[read.category], read.crowd)
            image.boxes.append(box)
