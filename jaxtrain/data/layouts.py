"""Detection of the `data.source` for a directory, from its files.

Directories named after splits or data set components, such as `train` or `images`, are
not classes. If there are only such directories, annotation files determine the source.
"""

import itertools
import os
import re
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from jaxtrain.data import INPUTS, target_images
from jaxtrain.data.csv_header import LABEL, PATHS, SEPARATORS
from jaxtrain.data.image_files import listed, shown
from jaxtrain.data.input_kind import InputKind
from jaxtrain.data.text import read_user_text
from jaxtrain.errors import UserError
from jaxtrain.plugin import Table

# File extension -> source type, in addition to the extensions of `LAYOUTS`.
KIND_BY_ENDING = {".csv": "csv", ".npz": "arrays"}
# Index file in the directory of a data set -> source type.
INDEX_FILES: Table[str] = Table("index_files", {})
# Names of directories that annotation tools create inside a data set.
PARTS = ("images", "labels", "masks", "annotations")
SPLIT = re.compile(
    r"(train|training|val|valid|validation|test|testing|dev|eval|holdout)"
    r"([ _-]?(set|data|images|imgs|\d+))?"
)
# Unsupported annotations: suffix of the file name -> name of the format.
UNREAD = {
    "_mask.png": "masks next to the images",
    "_classes.csv": "a table of classes in each split",
    ".csv": "a table",
    ".xml": "Pascal VOC",
    ".createml.json": "CreateML",
    ".tfrecord": "TFRecord",
    ".json": "JSON",
    ".txt": "text files",
}
INSTEAD = (
    "export the annotations as COCO JSON or YOLO, or list the images in a table, "
    "csv:FILE, with the columns path, label and split, or path, mask and split"
)


class Annotations(NamedTuple):
    """Annotations detected in a directory of images.

    Attributes:
      file: File or directory with the annotations, relative to the data set.
      source: `data.source` for the annotations, or None if unsupported.
      format: Name of the format.
    """

    file: str
    source: str | None
    format: str


class FolderLayout:
    """Directory layout that a source can read.

    Subclasses override the methods by which their layout is recognized.

    Attributes:
      format: Name of the format, for messages.
      endings: Supported file extensions, in lower case.
    """

    format: ClassVar[str]
    endings: ClassVar[tuple[str, ...]] = ()

    def marked(self, place: str, names: Sequence[str]) -> str | None:
        """Return the file or directory whose name identifies the layout, or None."""
        del place, names
        return None

    def in_part(
        self, place: str, part: str, names: set[str]
    ) -> tuple[str, str | None] | None:
        """Return the annotations in the directory `part` of a data set, or None.

        Args:
          place: Directory of the data set.
          part: Directory of the split, relative to `place`, or "" for `place`.
          names: File names in the directory, in lower case.

        Returns:
          Path of the annotations relative to `place`, and the name of their format if
          it is unsupported, else None.
        """
        del place, part, names
        return None

    def laid_out(self, place: str) -> str | None:
        """Return annotations identified by the directory structure alone, or None."""
        del place
        return None

    def is_list(self, file: str) -> bool:
        """Whether a file next to the images is an annotation file of this layout."""
        del file
        return False


class IdxLayout(FolderLayout):
    """Images and labels in MNIST's file format."""

    format = "MNIST's format"

    def marked(self, place: str, names: Sequence[str]) -> str | None:
        del place
        return next((name for name in names if "-idx3-ubyte" in name.lower()), None)


# Source type -> directory layout that it reads.
LAYOUTS: Table[type[FolderLayout]] = Table(
    "layouts", {"idx": "jaxtrain.data.layouts:IdxLayout"}
)


def kinds_by_ending() -> dict[str, str]:
    """Map file extensions to source types."""
    kinds = {
        ending: kind for kind, row in LAYOUTS.items() for ending in row.endings
    } | KIND_BY_ENDING
    return dict(sorted(kinds.items()))


def is_no_class(name: bytes | str) -> bool:
    """Whether a directory name is a split name, such as train, or listed in `PARTS`."""
    text = shown(name).lower()
    return text in PARTS or SPLIT.fullmatch(text) is not None


def guess(path: str) -> str | None:
    """Return the `data.source` for a path, or None for missing or unsupported paths."""
    place = os.path.expanduser(path)
    if os.path.isdir(place):
        annotations = find_annotations(path)
        if annotations is not None and annotations.source is not None:
            return annotations.source
        return f"{kind_of_files(place) or 'folder'}:{path}"
    kind = kinds_by_ending().get(os.path.splitext(place)[1].lower())
    return f"{kind}:{path}" if kind and os.path.isfile(place) else None


def find_annotations(path: str) -> Annotations | None:
    """Return the annotations of a directory, or None.

    Class directories take precedence over tables and unsupported annotations.
    """
    place = os.path.expanduser(path)
    annotations = _find_by_layout(place, path)
    if annotations is not None:
        return annotations
    folders = {n for part in ("", *_splits(place)) for n in _folders(place, part)}
    is_set = sum(not is_no_class(name) for name in folders) > 1
    return None if is_set else _find_list(place, path) or _find_unsupported(place)


def not_classes(source: str, root: str, names: Sequence[bytes]) -> str:
    """Return the error message for image directories that are not classes.

    Args:
      source: Source in messages, such as folder:photos.
      root: Directory of the data set.
      names: Directories that contain images, relative to `root`.
    """
    kind, _, given = source.partition(":")
    start = f"{source}: {listed(names)}"
    start += " is not a class" if len(names) == 1 else " are not classes"
    annotations = find_annotations(given)
    if annotations is not None and annotations.source is not None:
        file, source = shown(annotations.file), annotations.source
        return f"{start}, and {file} has annotations: give {source}"
    if annotations is not None:
        return (
            f"{start}, and the annotations have an unsupported format "
            f"({annotations.format}: {shown(annotations.file)}): {INSTEAD}"
        )
    nested = [name for name in names if _folders(root, os.fsdecode(name))]
    if nested:
        inner = f"{kind}:{os.path.join(given, shown(nested[0]))}"
        if SPLIT.fullmatch(shown(nested[0]).lower()):
            return (
                f"{start}, but splits, and the split train is missing: rename a split "
                f"to train, or give {inner}, from which the splits are held out"
            )
        return f"{start}: if the subfolders are the classes, give {inner}"
    return (
        f"{start}, and no annotations were found: put the files of each class into a "
        f"separate folder, {listed(names[:1])}/CLASS, or list the files in a table, "
        f"{_kind_of_table(kind)}:FILE.csv"
    )


def _find_by_layout(place: str, path: str) -> Annotations | None:
    names = _names(place)
    layouts = {kind: layout() for kind, layout in LAYOUTS.items()}
    for name, kind in INDEX_FILES.references.items():
        if name in names:
            return Annotations(name, f"{kind}:{path}", f"{kind} files")
    for kind, layout in layouts.items():
        if (file := layout.marked(place, names)) is not None:
            return Annotations(file, f"{kind}:{path}", layout.format)
    for part in ("", *_splits(place)):
        within = {name.lower() for name in _names(place, part)}
        candidates = []
        for kind, layout in layouts.items():
            if (annotated := layout.in_part(place, part, within)) is not None:
                file, unread = annotated
                source = None if unread else f"{kind}:{path}"
                candidates.append(Annotations(file, source, unread or layout.format))
        if candidates:
            return min(candidates, key=lambda annotations: annotations.source is None)
    for kind, layout in layouts.items():
        if (file := layout.laid_out(place)) is not None:
            return Annotations(file, f"{kind}:{path}", layout.format)
    return None


def _find_list(place: str, path: str) -> Annotations | None:
    """Return a table or another annotation file next to the images, or None."""
    for name in _names(place):
        file, file_path = os.path.join(place, name), os.path.join(path, name)
        ending = os.path.splitext(name)[1].lower()
        if ending == ".csv" and _lists_images(file):
            kind = _kind_of_table(kind_of_files(place))
            return Annotations(name, f"{kind}:{file_path}", "a table")
        for kind, layout in LAYOUTS.items():
            if layout().is_list(file):
                return Annotations(name, f"{kind}:{file_path}", layout.format)
    return None


def _find_unsupported(place: str) -> Annotations | None:
    """Return annotations in an unsupported format, or None."""
    parts = [name for name in PARTS if name in _folders(place)]
    for part in (*_splits(place), *parts, ""):
        names = [n for n in _names(place, part) if "readme" not in n.lower()]
        for end, format in UNREAD.items():
            # Text files in the root directory are rarely annotations.
            matches = [name for name in names if name.lower().endswith(end)]
            if matches and (part or end != ".txt"):
                return Annotations(os.path.join(part, matches[0]), None, format)
    return None


def _lists_images(file: str) -> bool:
    """Whether a table has columns for image paths and targets."""
    try:
        lines = read_user_text(file, file).lines()
    except UserError:  # The file is unreadable, or not text.
        return False
    targets = {LABEL, *target_images.columns()}
    # A line `sep=;` may precede the header.
    for header, separator in itertools.product(lines[:2], SEPARATORS):
        columns = {name.strip().strip('"') for name in header.lower().split(separator)}
        if columns & {*PATHS} and columns & targets:
            return True
    return False


def kind_of_files(place: str) -> str | None:
    """Return the source type for the first file of a known type, or None."""
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
    """Return the source type of tables, given the source type of the listed files."""
    return "csv" if kind in (None, InputKind.source) else kind


def _splits(place: str) -> list[str]:
    return [n for n in _folders(place) if SPLIT.fullmatch(shown(n).lower())]


def _folders(*parts: str) -> list[str]:
    path = os.path.join(*parts)
    return [n for n in _names(path) if os.path.isdir(os.path.join(path, n))]


def _names(*parts: str) -> list[str]:
    try:
        return sorted(n for n in os.listdir(os.path.join(*parts)) if n[0] != ".")
    except OSError:
        return []
