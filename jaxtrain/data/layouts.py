"""Layouts of folders: the source that reads a folder, by the files that lie in it.

Folders that are named after splits, or after parts of a set such as `images`, are no
classes: their annotations tell which source reads them.
"""

import itertools
import os
import re
from collections.abc import Sequence
from typing import NamedTuple

from jaxtrain.data import INPUTS
from jaxtrain.data.coco_layouts import annotation_files, is_coco
from jaxtrain.data.csv_header import LABEL, MASK, PATHS, SEPARATORS
from jaxtrain.data.folder_scan import holds_folders
from jaxtrain.data.image_files import listed, shown
from jaxtrain.data.input_kind import InputKind
from jaxtrain.data.masks import IMAGES, MASKS
from jaxtrain.data.read_files import MAX_FILE_BYTES
from jaxtrain.data.text import read_user_text
from jaxtrain.data.yolo_layout import YAML, is_yolo
from jaxtrain.errors import UserError
from jaxtrain.plugin import Table
from jaxtrain.regular_file import open_regular

# Ending of a file -> kind of source.
KIND_BY_ENDING = {
    ".csv": "csv",
    ".json": "coco",
    ".npz": "arrays",
    ".yaml": "yolo",
    ".yml": "yolo",
}
# Name of a file that marks the folder of a set -> kind of source.
INDEX_FILES: Table[str] = Table("index_files", {})
# Parts of a set, by the tools that write them.
PARTS = ("images", "labels", "masks", "annotations")
SPLIT = re.compile(
    r"(train|training|val|valid|validation|test|testing|dev|eval|holdout)"
    r"([ _-]?(set|data|images|imgs|\d+))?"
)
# Bytes of a JSON file that are looked at.
START_BYTES = 2**16
COCO, COCO_KEYS = "COCO JSON", (b'"images"', b'"file_name"')
# Annotations that no source reads: end of the name of a file -> name of the format.
UNREAD = {
    "_mask.png": "masks beside the images",
    "_classes.csv": "a table of classes in each split",
    ".csv": "a table",
    ".xml": "Pascal VOC",
    ".createml.json": "CreateML",
    ".tfrecord": "TFRecord",
    ".json": "JSON",
    ".txt": "text files",
}
INSTEAD = (
    "export them as COCO JSON or as YOLO, or list the images in a table, csv:FILE, "
    "with the columns path, label and split, or path, mask and split"
)


class Annotations(NamedTuple):
    """Annotations of a folder.

    Attributes:
      file: File or folder that holds them, as seen from the folder of the set.
      source: Source that reads them; None means that no source does.
      format: Name of the format.
    """

    file: str
    source: str | None
    format: str


def is_no_class(name: bytes | str) -> bool:
    """Whether a folder is called like a split, or like a part of a set."""
    text = shown(name).lower()
    return text in PARTS or SPLIT.fullmatch(text) is not None


def guess(path: str) -> str | None:
    """Return the source that a path stands for; None if nothing is there, or no set."""
    place = os.path.expanduser(path)
    if os.path.isdir(place):
        found = find_annotations(path)
        if found is not None and found.source is not None:
            return found.source
        return f"{_kind_of_files(place) or 'folder'}:{path}"
    kind = KIND_BY_ENDING.get(os.path.splitext(place)[1].lower())
    return f"{kind}:{path}" if kind and os.path.isfile(place) else None


def find_annotations(path: str) -> Annotations | None:
    """Return the annotations of a folder; None if folders are its classes."""
    place = os.path.expanduser(path)
    found = _known(place, path)
    if found is None and _num_classes(place) < 2:
        found = _listed(place, path) or _unread(place)
    return found


def not_classes(source: str, root: str, names: Sequence[bytes]) -> str:
    """Return the message for a folder whose folders of images are no classes.

    Args:
      source: Source in messages, such as folder:photos.
      root: Folder of the set.
      names: Folders that hold files, as seen from it.
    """
    kind, _, given = source.partition(":")
    start = f"{source}: {listed(names)}"
    start += " is no class" if len(names) == 1 else " are no classes"
    found = find_annotations(given)
    if found is not None and found.source is not None:
        told = shown(found.file)
        return f"{start}, and {told} has annotations: give {found.source}"
    if found is not None:
        return (
            f"{start}, and the annotations are of a format that is not read "
            f"({found.format}: {shown(found.file)}): {INSTEAD}"
        )
    nested = [name for name in names if _folders(root, os.fsdecode(name))]
    if nested:
        inner = f"{kind}:{os.path.join(given, shown(nested[0]))}"
        if SPLIT.fullmatch(shown(nested[0]).lower()):
            return (
                f"{start}, but splits, of which none is for training: name one train, "
                f"or give {inner}, of which parts are held out"
            )
        return f"{start}: if the folders in it are, give {inner}"
    return (
        f"{start}, and nothing tells what they show: put the files of each class into "
        f"a folder of its own, {listed(names[:1])}/CLASS, or list them in a table, "
        f"{_kind_of_table(kind)}:FILE.csv"
    )


def _known(place: str, path: str) -> Annotations | None:
    """Return annotations whose names, or those of their folders, tell their format."""
    names = _names(place)
    idx = [name for name in names if "-idx3-ubyte" in name.lower()]
    yaml = [name for name in names if os.fsencode(name.lower()) in YAML]
    instances = annotation_files(place) if is_coco(place, names) else []
    coco = [os.path.relpath(file, place) for _, file in instances]
    marked = INDEX_FILES.references.items()
    rows = (
        *((kind, f"{kind} files", [name]) for name, kind in marked if name in names),
        ("masks", "masks", ["masks"] if holds_folders(place, IMAGES, MASKS) else []),
        ("idx", "MNIST's format", idx),
        ("coco", COCO, coco),
        ("yolo", "YOLO", yaml),
    )
    for kind, format, found in rows:
        if found:
            return Annotations(found[0], f"{kind}:{path}", format)
    for part in ("", *_splits(place)):
        within = {name.lower() for name in _names(place, part)}
        labels = os.path.join(part, "labels")
        if {"images", "labels"} <= within:
            if _kind_of_files(os.path.join(place, labels)) is None:
                return Annotations(labels, f"yolo:{path}", "YOLO")
            return Annotations(labels, None, "images in labels")
        if {"images", "masks"} <= within:
            return Annotations(os.path.join(part, "masks"), None, "masks by split")
    return Annotations("labels", f"yolo:{path}", "YOLO") if is_yolo(place) else None


def _listed(place: str, path: str) -> Annotations | None:
    """Return a table, or a COCO JSON file, that lies beside the images."""
    for name in _names(place):
        file, own = os.path.join(place, name), os.path.join(path, name)
        ending = os.path.splitext(name)[1].lower()
        if ending == ".csv" and _lists_images(file):
            kind = _kind_of_table(_kind_of_files(place))
            return Annotations(name, f"{kind}:{own}", "a table")
        if ending == ".json" and all(x in _start(file) for x in COCO_KEYS):
            return Annotations(name, f"coco:{own}", COCO)
    return None


def _unread(place: str) -> Annotations | None:
    """Return annotations of a format that no source reads."""
    parts = [name for name in PARTS if name in _folders(place)]
    for part in (*_splits(place), *parts, ""):
        names = [n for n in _names(place, part) if "readme" not in n.lower()]
        for end, format in UNREAD.items():
            # A text in the folder of a set may be anything.
            found = [name for name in names if name.lower().endswith(end)]
            if found and (part or end != ".txt"):
                return Annotations(os.path.join(part, found[0]), None, format)
    return None


def _lists_images(file: str) -> bool:
    """Whether the header of a table has the columns of a list of images."""
    try:
        lines = read_user_text(file, file).lines()
    except UserError:  # It cannot be read, or is no text.
        return False
    # The header may stand below a line that tells the separator.
    for header, separator in itertools.product(lines[:2], SEPARATORS):
        found = {name.strip().strip('"') for name in header.lower().split(separator)}
        if found & {*PATHS} and found & {LABEL, MASK}:
            return True
    return False


def _num_classes(place: str) -> int:
    """Return the number of folders that may be classes, in the folder or its splits."""
    folders = [n for part in ("", *_splits(place)) for n in _folders(place, part)]
    return len({name for name in folders if not is_no_class(name)})


def _kind_of_files(place: str) -> str | None:
    """Return the kind of source that reads the first file of any; None: of none."""
    kinds = (*INPUTS.values(), InputKind)
    for _, folders, files in os.walk(place):
        folders.sort()
        names = [os.fsencode(name) for name in sorted(files)]
        shown = [name for name in names if not name.startswith(b".")]
        known = (kind for name in shown for kind in kinds if kind.marks(name))
        if kind := next(known, None):
            return kind.source
    return None


def _kind_of_table(kind: str | None) -> str:
    """Return the kind of source that reads a table of what folders of a kind hold."""
    return "csv" if kind in (None, InputKind.source) else kind


def _splits(place: str) -> list[str]:
    return [n for n in _folders(place) if SPLIT.fullmatch(shown(n).lower())]


def _folders(*parts: str) -> list[str]:
    path = os.path.join(*parts)
    return [n for n in _names(path) if os.path.isdir(os.path.join(path, n))]


def _names(*parts: str) -> list[str]:
    """Return the names in a folder, in order; [] if it is none, or cannot be read."""
    try:
        return sorted(n for n in os.listdir(os.path.join(*parts)) if n[0] != ".")
    except OSError:
        return []


def _start(file: str) -> bytes:
    try:
        with open_regular(file, MAX_FILE_BYTES) as opened:
            return opened.read(START_BYTES)
    except OSError:
        return b""
