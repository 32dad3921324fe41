"""Splits of a YOLO data set, from data.yaml or from directory names."""

import codecs
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from jaxtrain.data.classes import SPLITS
from jaxtrain.data.folder_scan import FolderScan
from jaxtrain.data.image_files import OUTSIDE, Folder, encoded_name, listed, shown
from jaxtrain.data.problems import Problems, UnusableError
from jaxtrain.data.read_files import read_file
from jaxtrain.data.stores import Remark
from jaxtrain.plugins.detection.yolo_layout import IMAGES, LIST, split_of

YAML_ENDINGS = (b".yaml", b".yml")


class SplitPart(NamedTuple):
    """Some images of a split: the images of a directory or of a file list.

    Attributes:
      place: Directory or list file, relative to the root of the data set.
      files: (path, line in the list) of each listed file; None for a directory.
    """

    place: bytes
    files: list[tuple[bytes, str]] | None = None


SplitParts = dict[str, list[SplitPart]]


def root_of(file: str, path: Any) -> str:
    """Return the root directory of a data set that a YAML file describes.

    Args:
      file: Path of the YAML file.
      path: Value of `path` in the YAML file; the root if it is an existing directory
        outside the YAML file's directory, which is the root otherwise.
    """
    yaml_dir = os.path.dirname(file) or "."
    if not isinstance(path, str) or not os.path.isdir(os.path.join(yaml_dir, path)):
        return yaml_dir
    named = os.path.normpath(os.path.join(yaml_dir, path))
    inside, folder = (os.path.join(os.path.realpath(x), "") for x in (named, yaml_dir))
    return yaml_dir if inside.startswith(folder) else named


class YoloSplits:
    """Finder of the directories and file lists of each split.

    Args:
      folder: Root directory of the data set.
      scan: Scan of the images in the root directory.
      file: YAML file of the data set, or None.
      values: Content of the YAML file.
      problems: Collector of unusable entries.
    """

    def __init__(
        self,
        folder: Folder,
        scan: FolderScan,
        file: str | None,
        values: Mapping[str, Any],
        problems: Problems,
    ):
        self._folder, self._scan, self._problems = folder, scan, problems
        self._values = values
        self._yaml = shown(os.path.basename(file or ""))
        self.remarks: list[Remark] = []
        root = os.path.abspath(folder.root)
        yaml_dir = root if file is None else os.path.abspath(os.path.dirname(file))
        bases = [root, yaml_dir]
        if isinstance(path := values.get("path"), str) and _is_name(path):
            bases.insert(0, os.path.join(yaml_dir, path))
        self._bases = [os.fsencode(base) for base in dict.fromkeys(bases)]

    def parts(self) -> SplitParts:
        """Return the directories and file lists of each split, training split first.

        Splits in the YAML file take precedence over directories.
        """
        named, lacking = self._named()
        found = self._by_folders(named)
        every = found | named
        if lost := {s: text for s, text in lacking.items() if s not in every}:
            told = ", ".join(f"{split}: {shown(text)}" for split, text in lost.items())
            if "train" in lost:
                self._problems.add(
                    f"{self._yaml} refers to {told}, which does not exist",
                    "give paths relative to `path`, or to the directory of the file",
                )
            self.remarks.append(
                Remark("missing splits", f"{self._yaml} names {told}", serious=True)
            )
        if instead := {s: text for s, text in lacking.items() if s in found}:
            told = ", ".join(
                f"{shown(found[split][0].place)} for {shown(text)}"
                for split, text in instead.items()
            )
            text = f"{told}, named in {self._yaml} but missing"
            self.remarks.append(Remark("folders read", text, serious=False))
        order = dict.fromkeys(SPLITS.values())
        return {split: every[split] for split in order if split in every}

    def _named(self) -> tuple[SplitParts, dict[str, str]]:
        """Return the splits in the YAML file, and the paths of missing splits."""
        named: SplitParts = {}
        lacking: dict[str, str] = {}
        for key, value in self._values.items():
            split = SPLITS.get(key.lower()) if isinstance(key, str) else None
            texts = value if isinstance(value, list) else [value]
            texts = [text for text in texts if text not in (None, "")]
            if split is None or not texts:
                continue
            if not all(isinstance(text, str) and _is_name(text) for text in texts):
                self._problems.add(
                    f"{self._yaml}: {key} is neither a path nor a list of paths",
                    "give folders of images, or lists of files (.txt)",
                )
                continue
            if split in named or split in lacking:
                self._problems.add(
                    f"{self._yaml}: {key} is a second {split} split",
                    f"give only one {split} split",
                )
                continue
            parts = [self._problems.attempt(self._part, text) for text in texts]
            known = [part for part in parts if part is not None]
            if len(known) == len(parts):
                named[split] = known
            elif len(texts) == 1:
                lacking[split] = texts[0]
            else:
                lost = [t for t, part in zip(texts, parts, strict=True) if part is None]
                self._problems.add(
                    f"{self._yaml} refers to {split}: {listed(lost)}, which does not "
                    "exist",
                    "give paths relative to `path`, or to the directory of the file",
                )
        return named, lacking

    def _part(self, text: str) -> SplitPart | None:
        """Resolve a path in the YAML file; None if the path does not exist.

        Raises:
          UnusableError: The path is neither a directory nor a readable list.
        """
        place = self._resolve(text, self._bases)
        if place is None:
            return None
        path = os.path.join(os.fsencode(self._folder.root), place)
        if os.path.isdir(path):
            return SplitPart(place)
        if not place.lower().endswith(LIST):
            raise UnusableError(
                f"{self._yaml} refers to {shown(text)}, which is neither a directory "
                "nor a list (.txt)",
                "give folders of images, or lists of files",
            )
        self._folder.size(place)
        return SplitPart(place, list(self._lines(place, path)))

    def _lines(self, place: bytes, path: bytes) -> Iterator[tuple[bytes, str]]:
        """Yield the files of a list, with their line numbers for messages."""
        data = read_file(path)
        if isinstance(data, OSError):
            raise UnusableError(
                f"{shown(place)}: {data.strerror}", "repair or remove the list"
            )
        bases = [os.path.dirname(path), *self._bases]
        for number, line in enumerate(
            data.removeprefix(codecs.BOM_UTF8).splitlines(), 1
        ):
            if not (text := line.strip()):
                continue
            where = f"{shown(place)}, line {number}"
            try:
                # Paths in Darknet's lists start with `data/`, meaning the root.
                file = self._resolve(text, bases) or self._resolve(
                    text.removeprefix(b"data/"), bases
                )
            except UnusableError as error:
                self._problems.add(error.text, error.fix, where)
                continue
            if file is None:
                self._problems.add(
                    f"{shown(text)} does not exist", "correct the list", where
                )
            else:
                yield file, where

    def _resolve(self, text: bytes | str, bases: list[bytes]) -> bytes | None:
        """Convert a path to a path relative to the root; None if it does not exist.

        Paths inside the root take precedence: Roboflow writes ../train/images for
        train/images.

        Args:
          text: Path as written in a file.
          bases: Directories that the path may be relative to.

        Raises:
          UnusableError: The path lies outside the root.
        """
        path = encoded_name(text).replace(b"\\", b"/")
        inner = re.sub(rb"^(\.\.?/)+", b"", path)
        outside = None
        for base in bases:
            for one in dict.fromkeys((path, inner)):
                whole = os.path.normpath(os.path.join(base, one))
                if not os.path.exists(whole):
                    continue
                place = self._folder.relative(os.path.join(whole, b"")).rstrip(b"/")
                if not place.startswith(b"/"):
                    self._folder.check_inside(place)
                    return place
                outside = outside or whole
        if outside is None:
            return None
        if not self._folder.allow_outside:
            raise UnusableError(
                f"{shown(text)} resolves to {shown(outside)}, outside "
                f"{shown(self._folder.root)}",
                OUTSIDE,
            )
        return os.path.relpath(
            outside, os.path.realpath(os.fsencode(self._folder.root))
        )

    def _by_folders(self, named: SplitParts) -> SplitParts:
        """Find splits by directory name, except splits listed in data.yaml."""
        found: SplitParts = {}
        for split, place in self._folders(bool(named)):
            if split in named:
                continue
            if split in found:
                self._problems.add(
                    f"{shown(place)} is a second {split} split",
                    "merge the two directories, or move one away",
                )
            else:
                found[split] = [SplitPart(place)]
        if not found and not named and self._has_both(b""):
            return {"train": [SplitPart(b"")]}
        return found

    def _folders(self, some_are_named: bool) -> Iterator[tuple[str, bytes]]:
        for name in self._scan.listing(b"")[0]:
            if name.lower() == IMAGES:
                yield from self._below(name, some_are_named)
            elif (split := split_of(name)) is not None:
                images = self._scan.folder_called(name, IMAGES)
                if images is not None:
                    yield split, images
                elif self._has_both(name):
                    yield split, name

    def _below(self, place: bytes, some_are_named: bool) -> Iterator[tuple[str, bytes]]:
        """Yield (split, directory) for the splits below an image directory.

        If no subdirectory is a split, the image directory is the training split.
        Otherwise, all subdirectories must be splits, unless the YAML file names splits.
        """
        folders = self._scan.listing(place)[0]
        splits = {name: split_of(name) for name in folders}
        if not any(splits.values()):
            yield "train", place
            return
        self._scan.ignore_files(place)
        for name, split in splits.items():
            inside = os.path.join(place, name)
            if split is not None:
                yield split, inside
            elif some_are_named:
                text = f"{shown(inside)}, which {self._yaml} does not name"
                self.remarks.append(Remark("folder left out", text, serious=True))
            else:
                self._problems.add(
                    f"{shown(inside)} is not a split ({', '.join(SPLITS)})",
                    "rename the directory, or move it away",
                )

    def _has_both(self, place: bytes) -> bool:
        """Whether a directory directly contains images and text files."""
        names = [entry.name for entry in self._scan.listing(place)[1]]
        has_text = any(name.lower().endswith(LIST) for name in names)
        return has_text and any(map(self._scan.kind.is_read, names))


def _is_name(text: str) -> bool:
    """Whether a text is a valid path."""
    try:
        encoded_name(text)
    except UnicodeEncodeError:
        return False
    return bool(text) and "\0" not in text
