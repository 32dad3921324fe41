"""Label files of images in a YOLO data set: labels/a/1.txt for images/a/1.jpg."""

import os
from typing import NamedTuple

from jaxtrain.data.classes import SPLITS
from jaxtrain.data.file_kind import FileKind
from jaxtrain.data.folder_scan import FolderScan
from jaxtrain.data.image_files import shown
from jaxtrain.data.problems import Problems
from jaxtrain.plugins.detection.yolo_layout import CLASSES, IMAGES, LABELS, LIST
from jaxtrain.plugins.detection.yolo_splits import SplitPart

LABEL = ".txt"


def _is_label(name: bytes) -> bool:
    return name.lower().endswith(LIST)


TEXTS = FileKind("label file", _is_label, lambda: (LABEL,), "NAME.txt")


class LabelledFile(NamedTuple):
    """Paths of an image and its label file, relative to the root of the data set.

    Attributes:
      image: Path of the image.
      where: Path of the image, or its line in a file list, for error messages.
      label: Path of the label file, or None if the image has no label file.
    """

    image: bytes
    where: str
    label: bytes | None


class LabelFiles:
    """Finder of the label files of images.

    Args:
      images: Scan of the images.
      texts: Scan of the label files.
      problems: Collector of errors.
    """

    def __init__(self, images: FolderScan, texts: FolderScan, problems: Problems):
        self._images, self._texts, self._problems = images, texts, problems
        self._labels: dict[bytes, dict[bytes, list[bytes]]] = {}

    def pair(self, part: SplitPart) -> list[LabelledFile]:
        """Return the images of a directory or file list, with their label files."""
        listed = part.files
        if listed is None:
            found = self._images.images(part.place)
            listed = [(name, shown(name)) for name, _ in found]
        taken = dict[bytes, bytes]()
        pairs = [
            LabelledFile(name, where, self._label(name, taken))
            for name, where in listed
        ]
        if pairs and not taken:
            self._report_unlabelled(part, pairs)
        if part.files is None:
            self._check_orphans(part, {*taken})
        return pairs

    def _label(self, image: bytes, taken: dict[bytes, bytes]) -> bytes | None:
        """Return the label file of an image, or None.

        Adds the pair to `taken`, label file -> image.
        """
        folder, name = os.path.split(image)
        stem = os.path.splitext(name)[0]
        found = self._in_folder(folder).get(stem, [])
        if len(found) > 1:
            self._problems.add(
                f"{shown(found[0])} and {shown(found[1])} both belong to "
                f"{shown(image)}",
                "keep one of the two files",
            )
        if not found:
            return None
        other = taken.setdefault(found[0], image)
        if other != image:
            self._problems.add(
                f"{shown(other)} and {shown(image)} share one label file, "
                f"{shown(found[0])}",
                "rename one of the images: images and label files are matched by name, "
                "without extension",
            )
        return found[0]

    def _in_folder(self, images: bytes) -> dict[bytes, list[bytes]]:
        """Return the label files for the images of a directory, keyed by file stem."""
        if images not in self._labels:
            by_stem: dict[bytes, list[bytes]] = {}
            place = self.folder_of_labels(images)
            for entry in [] if place is None else self._texts.listing(place)[1]:
                if _is_label(entry.name):
                    path = os.path.join(place or b"", entry.name)
                    by_stem.setdefault(os.path.splitext(entry.name)[0], []).append(path)
            self._labels[images] = by_stem
        return self._labels[images]

    def folder_of_labels(self, images: bytes) -> bytes | None:
        """Return the label directory of an image directory; None if it does not exist.

        The last path component `images` is replaced by `labels`. Without such a
        component, label files are expected next to the images.
        """
        parts = images.split(b"/")
        lower = [part.lower() for part in parts]
        if IMAGES not in lower:
            return images
        last = len(parts) - 1 - lower[::-1].index(IMAGES)
        place: bytes | None = b"/".join(parts[:last])
        for name in (LABELS, *parts[last + 1 :]):
            place = self._texts.folder_called(place, name)
            if place is None:
                siblings = [entry.name for entry in self._texts.listing(images)[1]]
                return images if any(map(_is_label, siblings)) else None
        return place

    def _report_unlabelled(self, part: SplitPart, pairs: list[LabelledFile]) -> None:
        """Report a directory or file list in which no image has a label file."""
        folder = part.place
        if part.files is not None:
            folder = os.path.dirname(pairs[0].image)
        labels, num = self.folder_of_labels(folder), len(pairs)
        what = "the label directory is missing"
        if labels is not None:
            what = (
                f"{shown(labels) or 'the directory'} has no label files for these "
                "images"
            )
        self._problems.add(
            f"{shown(part.place) or 'the data set'}: {num} images, but {what}, so no "
            "image would have boxes",
            "add a label file for each image that has boxes, or move the images away",
        )

    def _check_orphans(self, part: SplitPart, taken: set[bytes]) -> None:
        """Report label files without an image."""
        labels = self.folder_of_labels(part.place)
        found = [] if labels is None else self._texts.images(labels)
        unread = {
            os.path.splitext(os.path.basename(n))[0] for n in self._images.unread()
        }
        for name, _ in found:
            base = os.path.basename(name).lower()
            stem = os.path.splitext(base)[0]
            is_other = base in CLASSES or shown(stem) in SPLITS or stem in unread
            if name not in taken and not is_other and not base.startswith(b"readme"):
                self._problems.add(
                    f"{shown(name)} has no image in "
                    f"{shown(part.place) or 'the data set'}",
                    "add the image, or remove the label file",
                )
