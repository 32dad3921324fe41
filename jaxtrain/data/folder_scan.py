"""Finds the images of classes in a folder, and counts what it passes over."""

import os
from collections import Counter
from typing import NamedTuple

from jaxtrain.data import formats
from jaxtrain.data.image_files import Folder, listed, shown
from jaxtrain.data.include import Include
from jaxtrain.data.problems import Problems, UnusableError
from jaxtrain.data.stores import Remark

# Folders that programs leave beside images, with files that look like them.
LEFT_BEHIND = (b"__macosx", b"@eadir", b"lost+found")


class ScannedFile(NamedTuple):
    """An image file: its place in the folder, and its size in bytes."""

    name: bytes
    size: int


# The files of each class, by the name of its folder.
Classes = dict[bytes, list[ScannedFile]]
Entries = list["os.DirEntry[bytes]"]


class FolderScan:
    """Lists folders and images; what it cannot use it hands to `problems`."""

    def __init__(self, folder: Folder, include: Include, problems: Problems):
        self._folder, self._include, self._problems = folder, include, problems
        self._listings: dict[bytes, tuple[list[bytes], Entries]] = {}
        # Files that are no image, or lie in no class.
        self.ignored: list[bytes] = []
        self._left_behind: list[bytes] = []
        self._num_hidden = 0
        # Folders inside those of classes -> images in them.
        self._nested: Counter[bytes] = Counter()

    def folders(self, place: bytes) -> list[bytes]:
        """Return the names of the folders at a place."""
        return self._listing(place)[0]

    def holds_images(self, place: bytes) -> bool:
        """Whether images lie directly at a place."""
        return any(formats.is_image(entry.name) for entry in self._listing(place)[1])

    def ignore_files(self, place: bytes) -> None:
        """Count the files that lie directly at a place as passed over."""
        self.ignored += [
            os.path.join(place, entry.name) for entry in self._listing(place)[1]
        ]

    def classes(self, place: bytes) -> Classes:
        """Return the classes that lie at a place, and their files."""
        self.ignore_files(place)
        found: Classes = {}
        for name in self.folders(place):
            found[name] = []
            self._collect(os.path.join(place, name), found[name], ())
        return found

    def nested_in(self, place: bytes) -> list[bytes]:
        """Return the folders with images inside the folder of a class."""
        start = os.path.join(place, b"")
        return [name for name in self._nested if name.startswith(start)]

    def remarks(self) -> tuple[Remark, ...]:
        """Return remarks on ignored files, and on images deeper than usual."""
        found = []
        strays = [name for name in self.ignored if formats.is_image(name)]
        counts = formats.count_endings(
            name for name in self.ignored if not formats.is_image(name)
        )
        parts = [formats.describe_counts(counts)] if counts else []
        if strays:
            parts.append(
                f"{len(strays):,} images in no folder of a class: {listed(strays)}"
            )
        if self._left_behind:
            parts.append(f"the folders {listed(self._left_behind)}")
        if self._num_hidden:
            parts.append(f"{self._num_hidden:,} hidden")
        if parts:
            serious = bool(strays) or formats.are_images(counts) > 0
            found.append(Remark("passed over", "; ".join(parts), serious))
        if self._nested:
            number = sum(self._nested.values())
            text = (
                f"{number:,} images lie in folders inside those of classes "
                f"({listed(self._nested)}) and are of the class outside"
            )
            found.append(Remark("nested", text, self._could_be_classes()))
        return tuple(found)

    def _could_be_classes(self) -> bool:
        """Whether folders of one name lie in several classes, as classes would."""
        names = Counter(os.path.basename(place) for place in self._nested)
        return max(names.values()) > 1

    def _collect(
        self, place: bytes, files: list[ScannedFile], above: tuple[tuple[int, int], ...]
    ) -> None:
        """Add the images at a place, and in the folders below, to those of a class.

        Args:
          place: Path of a folder.
          files: Files of its class, which are added to.
          above: Identities of the folders above it, up to that of its class.
        """
        identity = self._folder.identity(place)
        if identity in above:
            self._problems.add(
                f"{shown(place)} leads back to a folder that it lies in",
                "take the link out of the set",
            )
            return
        before = len(files)
        folders, entries = self._listing(place, keep=False)
        for entry in entries:
            name = os.path.join(place, entry.name)
            if not formats.is_image(entry.name):
                self.ignored.append(name)
            elif self._include.keeps(name):
                try:
                    files.append(ScannedFile(name, self._folder.size(name, entry)))
                except UnusableError as error:
                    self._problems.take(error)
        if above and len(files) > before:
            self._nested[place] += len(files) - before
        for name in folders:
            self._collect(os.path.join(place, name), files, (*above, identity))

    def _listing(
        self, place: bytes, *, keep: bool = True
    ) -> tuple[list[bytes], Entries]:
        """Return the names of folders at a place, and what else there is, once."""
        if place in self._listings:
            return self._listings[place]
        folders: list[bytes] = []
        others: Entries = []
        try:
            entries = self._folder.entries(place)
        except UnusableError as error:
            self._problems.take(error)
            entries = []
        for entry in entries:
            if entry.name.startswith(b"."):
                self._num_hidden += 1
                continue
            name = os.path.join(place, entry.name)
            try:
                is_folder = self._folder.is_folder(name, entry)
            except UnusableError as error:
                self._problems.take(error)
                continue
            if not is_folder:
                others.append(entry)
            elif entry.name.lower() in LEFT_BEHIND:
                self._left_behind.append(name)
            else:
                folders.append(entry.name)
        if keep:
            self._listings[place] = folders, others
        return folders, others
