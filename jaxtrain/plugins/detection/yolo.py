"""Data sources `yolo:DIR` and `yolo:FILE.yaml`: images with YOLO label files.

Each line of a label file is a class index, followed by a box (centre x, centre y,
width, height) or by a polygon (x and y of each point). Coordinates are fractions of the
image's width or height.
"""

import collections
import os
from collections.abc import Iterator
from typing import Any

from jaxtrain.config import DataConfig
from jaxtrain.data.folder_scan import FolderScan
from jaxtrain.data.image_files import Folder, listed, shown
from jaxtrain.data.include import Include
from jaxtrain.data.problems import Problems
from jaxtrain.data.read_files import read_file
from jaxtrain.data.stores import Opened, Remark
from jaxtrain.data.text import decode_user_text, nfc, parse_yaml, read_user_text
from jaxtrain.errors import UserError, counted
from jaxtrain.plugins.detection.box_lists import ListedBox, ListedImage, to_store
from jaxtrain.plugins.detection.yolo_layout import CLASSES, YAML
from jaxtrain.plugins.detection.yolo_pairs import TEXTS, LabelFiles, LabelledFile
from jaxtrain.plugins.detection.yolo_rows import num_keypoints, read_row
from jaxtrain.plugins.detection.yolo_splits import (
    YAML_ENDINGS,
    SplitParts,
    YoloSplits,
    root_of,
)

LAYOUT = (
    "images/train/NAME.jpg with labels/train/NAME.txt, or train/images/NAME.jpg with "
    "train/labels/NAME.txt, and data.yaml with `names`"
)
MAX_NAMES = 100_000


def open_yolo(name: str, config: DataConfig) -> Opened:
    """Open images with one YOLO label file each.

    An image whose label file is missing or empty has no boxes.

    Args:
      name: Directory of the data set, or its YAML file.
      config: `data` section of the config.

    Raises:
      UserError: The directory or a file is invalid; the message lists all problems.
    """
    source, place = config.source, os.path.expanduser(name)
    problems = Problems(source)
    is_file = _is_yaml(os.fsencode(place)) and not os.path.isdir(place)
    file = place if is_file else _yaml_of(Folder(place, config))
    values = {} if file is None else _values(source, file, problems)
    root = root_of(place, values.get("path")) if is_file else place
    folder, every = Folder(root, config), Include(config)
    scan = FolderScan(folder, every, problems)
    texts = FolderScan(folder, every, problems, TEXTS)
    layout, pairs = (
        YoloSplits(folder, scan, file, values, problems),
        LabelFiles(scan, texts, problems),
    )
    parts = layout.parts()
    lists = _class_files(texts, pairs, parts)
    names = _names(source, folder, file, values, lists, problems)
    unread = collections.Counter[str]()
    found, remarks = _splits(parts, pairs)
    images = {
        split: [
            ListedImage(
                pair.where,
                pair.image,
                None,
                list(
                    _boxes(folder, pair, names, num_keypoints(values), problems, unread)
                ),
            )
            for pair in some
        ]
        for split, some in found.items()
    }
    if not any(images.values()):
        problems.check()
        ignored = "".join(f"; {r.title}: {r.text}" for r in _ignored_files(scan, texts))
        raise UserError(f"{source} has no images: expected {LAYOUT}{ignored}")
    for what, num in unread.items():
        remarks.append(Remark("columns not read", f"{what}, in {num:,} rows", False))
    remarks += [*layout.remarks, *_ignored_files(scan, texts)]
    ids = range(len(names))
    return to_store(config, folder.root, images, names, ids, problems, remarks)


def _splits(
    parts: SplitParts, pairs: LabelFiles
) -> tuple[dict[str, list[LabelledFile]], list[Remark]]:
    """Return the distinct images of each split, and remarks for the user."""
    seen, remarks = dict[bytes, str](), list[Remark]()
    found: dict[str, list[LabelledFile]] = {}
    unlabelled: list[bytes] = []
    for split, some in parts.items():
        every = [pair for part in some for pair in pairs.pair(part)]
        new = [p for p in every if seen.setdefault(p.image, split) == split]
        new = [*{pair.image: pair for pair in new}.values()]
        if twice := len(every) - len(new):
            where = shown(some[0].place) or "the data set"
            num = counted(twice, "image")
            text = f"{num} of {split} ({where}) listed twice, used once"
            remarks.append(Remark("images twice", text, serious=True))
        unlabelled += [pair.image for pair in new if pair.label is None]
        if new:
            found[split] = new
    if unlabelled:
        text = f"{len(unlabelled):,} images, treated as having no boxes: "
        text += listed(unlabelled)
        remarks.append(Remark("without a label file", text, serious=False))
    return found, remarks


def _ignored_files(scan: FolderScan, texts: FolderScan) -> list[Remark]:
    """Return remarks on files that are neither images nor label files."""
    others = {name for name in texts.ignored if not scan.kind.is_read(name)}
    ignored = dict.fromkeys([*scan.ignored, *sorted(others)])
    scan.ignored = [name for name in ignored if not texts.kind.is_read(name)]
    return [remark for remark in scan.remarks() if remark.title != "nested"]


def _is_yaml(name: bytes) -> bool:
    return name.lower().endswith(YAML_ENDINGS)


def _yaml_of(folder: Folder) -> str | None:
    """Return the path of data.yaml, or else of the only YAML file, or None."""
    found = [entry.name for entry in folder.entries(b"") if _is_yaml(entry.name)]
    found = [name for name in found if not name.startswith(b".")]
    usual = [name for name in found if name.lower() in YAML]
    chosen = usual[:1] or (found if len(found) == 1 else [])
    return os.path.join(folder.root, os.fsdecode(chosen[0])) if chosen else None


def _class_files(texts: FolderScan, pairs: LabelFiles, parts: SplitParts) -> list[str]:
    """Find class-name files in the root, in label directories, and in their parents."""
    folders = [b""]
    for part in (part for some in parts.values() for part in some):
        place = None if part.files is not None else pairs.folder_of_labels(part.place)
        while place:
            folders.append(place)
            place = os.path.dirname(place)
    return [
        os.fsdecode(os.path.join(os.fsencode(texts.root), place, entry.name))
        for place in dict.fromkeys(folders)
        for entry in texts.listing(place)[1]
        if entry.name.lower() in CLASSES
    ]


def _names(
    source: str,
    folder: Folder,
    file: str | None,
    values: dict[str, Any],
    lists: list[str],
    problems: Problems,
) -> list[str]:
    """Return the names of the classes.

    Args:
      source: Name of the data set in messages.
      folder: Directory of the data set.
      file: YAML file, or None.
      values: Content of the YAML file.
      lists: Files with one class name per line.
      problems: Collector of remarks on the text encoding of files.

    Raises:
      UserError: No file has class names, or two files have different class names.
    """
    if file is not None and ("names" in values or not lists):
        return _yaml_names(source, file, values)
    if not lists:
        raise UserError(
            f"{source} has neither {shown(YAML[0])} with class names, nor "
            f"{shown(CLASSES[0])} with one name per line: expected {LAYOUT}"
        )
    path, *others = lists
    texts = {one: _lines(source, one, problems) for one in lists}
    for other in others:
        if texts[other] != texts[path]:
            raise UserError(
                f"{source}: {shown(path)} and {shown(other)} list different class "
                f"names: keep one of the files, or write {shown(YAML[0])} with `names`"
            )
    return _check_names(source, path, texts[path])


def _values(source: str, path: str, problems: Problems) -> dict[str, Any]:
    """Parse a YAML file.

    Raises:
      UserError: The file cannot be read, or is not YAML.
    """
    where = f"{source}: {shown(path)}"
    text = read_user_text(path, where)
    problems.remarks += text.remarks(path)
    values = parse_yaml(text.content, where)
    return values if isinstance(values, dict) else {}


def _yaml_names(source: str, path: str, values: dict[str, Any]) -> list[str]:
    names = values.get("names")
    if isinstance(names, dict):
        integer_keys = all(type(key) is int for key in names)
        keys = sorted(names) if integer_keys else []
        # The index of a name is its class, so a missing key would shift later names.
        names = [names[key] for key in keys] if keys == [*range(len(names))] else None
    return _check_names(source, path, names)


def _check_names(source: str, path: str, names: Any) -> list[str]:
    good = isinstance(names, list) and 0 < len(names) <= MAX_NAMES
    if not good or not all(isinstance(name, str | int) for name in names):
        raise UserError(
            f"{source}: {shown(path)} has no valid `names`: expected a list of strings "
            "or a mapping of class indices to strings, such as names: [cat, dog]"
        )
    texts = [nfc(shown(str(name))) for name in names]
    if len({*texts}) < len(texts):
        twice = next(name for name in texts if texts.count(name) > 1)
        raise UserError(
            f"{source}: {shown(path)} lists the class name {twice!r} more than once: "
            "give each class a unique name"
        )
    return texts


def _lines(source: str, path: str, problems: Problems) -> list[str]:
    text = read_user_text(path, f"{source}: {shown(path)}")
    problems.remarks += text.remarks(path)
    return [line.strip() for line in text.lines() if line.strip()]


def _boxes(
    folder: Folder,
    pair: LabelledFile,
    names: list[str],
    keypoints: int,
    problems: Problems,
    unread: collections.Counter[str],
) -> Iterator[ListedBox]:
    """Yield the boxes of an image; count lines with ignored columns in `unread`."""
    path = pair.label
    if path is None or problems.attempt(folder.size, path) is None:
        return
    data = read_file(os.path.join(os.fsencode(folder.root), path))
    if isinstance(data, OSError):
        problems.add(f"{shown(path)}: {data.strerror}", "repair or remove the file")
        return
    try:
        lines = decode_user_text(data).lines()
    except ValueError as error:
        problems.add(f"{shown(path)}: {error}", "repair or remove the file")
        return
    for number, line in enumerate(lines, 1):
        where = f"{shown(path)}, line {number}"
        if line.strip():
            fields = line.split()
            row = problems.attempt(read_row, fields, len(names), keypoints, where=where)
            if row is not None:
                unread.update([row.unread] if row.unread else [])
                yield row.box
