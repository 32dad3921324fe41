"""`yolo:DIR`: images with boxes, in a text file an image, as YOLO's.

A line is the number of a class, then the middle of a box, its width and its height, in
parts of the width and height of the image.
"""

import os
from collections.abc import Iterator
from typing import Any

from jaxtrain.config import DataConfig
from jaxtrain.data import formats
from jaxtrain.data.box_lists import ListedBox, ListedImage, corners, to_store
from jaxtrain.data.classes import SPLITS
from jaxtrain.data.folder_scan import IMAGES as PICTURES
from jaxtrain.data.image_files import Folder, shown
from jaxtrain.data.problems import Problems, UnusableError
from jaxtrain.data.read_files import read_file
from jaxtrain.data.stores import Opened
from jaxtrain.errors import UserError
from jaxtrain.regular_file import read_text

IMAGES, LABELS = b"images", b"labels"
YAML, CLASSES = ("data.yaml", "data.yml"), "classes.txt"
LAYOUT = (
    "images/train/NAME.jpg with labels/train/NAME.txt, or train/images/NAME.jpg with "
    "train/labels/NAME.txt, and data.yaml with `names`"
)
LINE = "expected CLASS X Y WIDTH HEIGHT, the last four from 0 to 1"
MAX_NAMES = 100_000


def open_yolo(name: str, config: DataConfig) -> Opened:
    """Open images whose boxes lie in a text file each.

    An image without a text file, or with an empty one, has no box.

    Raises:
      UserError: it is no such folder, or holds what cannot be used; one message has all
        of it.
    """
    folder, problems = Folder(os.path.expanduser(name), config), Problems(config.source)
    names = _names(config.source, folder.root)
    places, images = _places(folder), dict[str, list[ListedImage]]()
    unread = list[bytes]()
    for place, labels in places:
        split = SPLITS[_split_of(place)]
        if split in images:
            problems.add(f"{shown(place)}: another {split} split", "move one away")
            continue
        images[split] = list(_images(folder, place, labels, names, problems, unread))
    if not any(images.values()):
        problems.check()
        passed = "".join(f"; {r.title}: {r.text}" for r in PICTURES.passed_over(unread))
        raise UserError(f"{config.source} holds no image: expected {LAYOUT}{passed}")
    ids, remarks = range(len(names)), PICTURES.passed_over(unread)
    return to_store(config, folder.root, images, names, ids, problems, remarks)


def _split_of(place: bytes) -> str:
    """Return the part of a path that names the split."""
    parts = [shown(part).lower() for part in place.split(b"/")]
    return next(part for part in parts if part in SPLITS)


def _places(folder: Folder) -> list[tuple[bytes, bytes]]:
    """Return the folders of images and of their labels, the training split first."""
    found = []
    for split in SPLITS:
        for images, labels in (
            (
                os.path.join(IMAGES, split.encode()),
                os.path.join(LABELS, split.encode()),
            ),
            (
                os.path.join(split.encode(), IMAGES),
                os.path.join(split.encode(), LABELS),
            ),
        ):
            if os.path.isdir(os.path.join(os.fsencode(folder.root), images)):
                found.append((images, labels))
    return found


def _names(source: str, root: str) -> list[str]:
    """Return the names of the classes.

    Raises:
      UserError: no file has them, or something else is there.
    """
    for file in YAML:
        path = os.path.join(root, file)
        if os.path.isfile(path):
            return _of_yaml(source, path)
    path = os.path.join(root, CLASSES)
    if not os.path.isfile(path):
        raise UserError(
            f"{source}: there is no {YAML[0]} with the names of the classes, nor a "
            f"{CLASSES} with a name a line: expected {LAYOUT}"
        )
    names = [line.strip() for line in _text(source, path).splitlines() if line.strip()]
    return _checked(source, path, names)


def _of_yaml(source: str, path: str) -> list[str]:
    import yaml

    try:
        values: Any = yaml.load(_text(source, path), _yaml_loader())
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        told = " ".join(str(error).split())[:200]
        raise UserError(f"{source}: {shown(path)} is no YAML: {told}") from None
    names = values.get("names") if isinstance(values, dict) else None
    if isinstance(names, dict):
        whole = all(type(key) is int for key in names)
        keys = sorted(names) if whole else []
        # A number that is left out has no box: its name would be that of another.
        names = [names[key] for key in keys] if keys == [*range(len(names))] else None
    return _checked(source, path, names)


def _yaml_loader() -> Any:
    """Return PyYAML's safe loader without aliases of lists and mappings.

    A merge of ten aliases in each of ten lines makes ten thousand million fields.
    """
    import yaml

    class FlatLoader(yaml.SafeLoader):
        def compose_node(self, parent: Any, index: Any) -> Any:
            is_alias = self.check_event(yaml.AliasEvent)
            node = super().compose_node(parent, index)
            if is_alias and not isinstance(node, yaml.ScalarNode):
                raise yaml.YAMLError("it has an alias of a list or of a mapping")
            return node

    return FlatLoader


def _checked(source: str, path: str, names: Any) -> list[str]:
    good = isinstance(names, list) and 0 < len(names) <= MAX_NAMES
    if not good or not all(isinstance(name, str | int) for name in names):
        raise UserError(
            f"{source}: {shown(path)} has no `names`: expected a list of texts, or "
            "texts by their numbers from 0 on, such as names: [cat, dog]"
        )
    told = [shown(str(name)) for name in names]
    if len({*told}) < len(told):
        twice = next(name for name in told if told.count(name) > 1)
        raise UserError(f"{source}: {shown(path)} has the name {twice!r} twice")
    return told


def _text(source: str, path: str) -> str:
    try:
        return read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{source}: {shown(path)} cannot be read: {error}") from None


def _images(
    folder: Folder,
    place: bytes,
    labels: bytes,
    names: list[str],
    problems: Problems,
    unread: list[bytes],
) -> Iterator[ListedImage]:
    """Yield the images of a split; what is wrong goes to `problems`.

    Images of formats that are not read here go to `unread`.
    """
    texts = set[bytes]()
    if os.path.isdir(os.path.join(os.fsencode(folder.root), labels)):
        found = problems.attempt(folder.entries, labels) or []
        texts = {one.name for one in found if one.name.endswith(b".txt")}
    for entry in problems.attempt(folder.entries, place) or []:
        text = os.path.splitext(entry.name)[0] + b".txt"
        if formats.is_unread(entry.name):
            unread.append(os.path.join(place, entry.name))
            texts.discard(text)
        if not formats.is_image(entry.name):
            continue
        boxes: list[ListedBox] = []
        if text in texts:
            texts.remove(text)
            boxes = list(_boxes(folder, os.path.join(labels, text), names, problems))
        path = os.path.join(place, entry.name)
        yield ListedImage(shown(path), path, None, boxes)
    for text in sorted(texts):
        problems.add(
            f"{shown(os.path.join(labels, text))} is of no image in {shown(place)}",
            "add the image, or take the file out",
        )


def _boxes(
    folder: Folder, path: bytes, names: list[str], problems: Problems
) -> Iterator[ListedBox]:
    if problems.attempt(folder.size, path) is None:
        return
    data = read_file(os.path.join(os.fsencode(folder.root), path))
    if isinstance(data, OSError):
        problems.add(f"{shown(path)}: {data.strerror}", "mend it, or take it out")
        return
    for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
        where = f"{shown(path)}, line {number}"
        if line.strip():
            box = problems.attempt(_box, line.split(), len(names), where=where)
            if box is not None:
                yield box


def _box(fields: list[str], num_names: int) -> ListedBox:
    try:
        kind, (x, y, width, height) = int(fields[0]), map(float, fields[1:])
    except ValueError:
        told = shown(" ".join(fields)[:60])
        raise UnusableError(f"{told!r} is no box", LINE) from None
    if not 0 <= kind < num_names:
        raise UnusableError(
            f"there is no class {kind}",
            f"give a number from 0 to {num_names - 1}, or add names to {YAML[0]}",
        )
    return ListedBox(
        corners(x - width / 2, y - height / 2, width, height, (1, 1)), kind
    )
