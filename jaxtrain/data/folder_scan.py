"""Scan a directory for class directories and images, and record ignored files."""

import os
from collections import Counter

from jaxtrain.data import formats
from jaxtrain.data.file_kind import IMAGES, FileKind
from jaxtrain.data.image_files import Folder, listed
from jaxtrain.data.include import Include
from jaxtrain.data.problems import Problems
from jaxtrain.data.stores import Remark

# Directories created by operating systems or NAS servers; their files look like images.
LEFT_BEHIND = (b"__macosx", b"@eadir", b"lost+found")


# Class directory -> its files, as (path relative to the data set, size in bytes).
Classes = dict[bytes, list[tuple[bytes, int]]]
Entries = list["os.DirEntry[bytes]"]


def holds_folders(place: str | bytes, *names: bytes) -> bool:
    """Whether a directory has all named subdirectories, matched case-insensitively.

    Args:
      place: Path of the directory.
      *names: Names of the subdirectories, in lower case.
    """
    with os.scandir(os.fsencode(place)) as entries:
        present = {entry.name.lower() for entry in entries if entry.is_dir()}
    return present >= {*names}


class FolderScan:
    """Scan of the directory of a data set.

    Args:
      folder: Directory of the data set.
      include: Filter of file names.
      problems: Collector of problems, such as unreadable directories.
      kind: Type of the example files, such as images.
    """

    def __init__(
        self,
        folder: Folder,
        include: Include,
        problems: Problems,
        kind: FileKind = IMAGES,
    ):
        self.kind, self.root = kind, folder.root
        self._folder, self.include, self._problems = folder, include, problems
        self._listings: dict[bytes, tuple[list[bytes], Entries]] = {}
        # Files of other types, and files outside the class directories.
        self.ignored: list[bytes] = []
        self._left_behind: list[bytes] = []
        self._num_hidden = 0
        # Symbolic links to one of their parent directories.
        self._loops: list[bytes] = []
        # Directories nested in class directories -> number of images.
        self._nested: Counter[bytes] = Counter()

    def ignore_files(self, place: bytes) -> None:
        """Record the files of a directory, not of its subdirectories, as ignored."""
        self.ignored += [
            os.path.join(place, entry.name) for entry in self.listing(place)[1]
        ]

    def classes(self, place: bytes) -> Classes:
        """Return the files of each class directory in the directory `place`."""
        self.ignore_files(place)
        classes: Classes = {}
        for name in self.listing(place)[0]:
            classes[name] = []
            self._collect(os.path.join(place, name), classes[name])
        return classes

    def images(self, place: bytes) -> list[tuple[bytes, int]]:
        """Return all image files below a directory, recursively."""
        files: list[tuple[bytes, int]] = []
        self._collect(place, files)
        return files

    def nested_in(self, place: bytes) -> bool:
        """Whether a class directory has nested directories with images."""
        start = os.path.join(place, b"")
        return any(name.startswith(start) for name in self._nested)

    def unread(self) -> list[bytes]:
        """Return the ignored files whose formats are known, but not supported."""
        return [name for name in self.ignored if self.kind.is_unread(name)]

    def remarks(self) -> tuple[Remark, ...]:
        """Return remarks on ignored files, and on nested directories."""
        remarks = []
        is_read, noun = self.kind.is_read, self.kind.noun
        strays = [name for name in self.ignored if is_read(name)]
        counts = formats.count_endings(
            name for name in self.ignored if not is_read(name)
        )
        parts = [formats.describe_counts(counts)] if counts else []
        if strays:
            parts.append(
                f"{len(strays):,} {noun}s outside the class folders: {listed(strays)}"
            )
        if self._left_behind:
            parts.append(f"the folders {listed(self._left_behind)}")
        if self._loops:
            links = f"{len(self._loops):,} links to a parent folder"
            parts.append(f"{links}: {listed(self._loops)}")
        if self._num_hidden:
            parts.append(f"{self._num_hidden:,} hidden")
        if parts:
            serious = bool(strays) or formats.count_images(counts) > 0
            remarks.append(Remark("passed over", "; ".join(parts), serious))
        if self._nested:
            number = sum(self._nested.values())
            text = (
                f"{number:,} {noun}s lie in subfolders of class folders "
                f"({listed(self._nested)}) and get the class of the outer folder"
            )
            # Nested directories with the same name in several classes may be the
            # intended classes.
            names = Counter(os.path.basename(place) for place in self._nested)
            remarks.append(Remark("nested", text, max(names.values()) > 1))
        return tuple(remarks)

    def _collect(
        self, place: bytes, files: list[tuple[bytes, int]], *, inside: bool = False
    ) -> None:
        """Add the images below a directory to the files of a class.

        Args:
          place: Path of the directory, relative to the data set.
          files: Files of the class, extended in place.
          inside: Whether the directory is nested in a class directory.
        """
        before = len(files)
        folders, entries = self.listing(place, keep=False)
        for entry in entries:
            name = os.path.join(place, entry.name)
            if not self.kind.is_read(entry.name):
                self.ignored.append(name)
            elif self.include.keeps(name):
                size = self._problems.attempt(self._folder.size, name, entry)
                if size is not None:
                    files.append((name, size))
        if inside and len(files) > before:
            self._nested[place] += len(files) - before
        for name in folders:
            self._collect(os.path.join(place, name), files, inside=True)

    def folder_called(self, place: bytes, name: bytes) -> bytes | None:
        """Return the path of a subdirectory, matched case-insensitively, or None."""
        alike = [one for one in self.listing(place)[0] if one.lower() == name.lower()]
        if name in alike:
            return os.path.join(place, name)
        if len(alike) > 1:
            self._problems.add(
                f"the folders {listed(os.path.join(place, one) for one in alike)} "
                "differ only in upper and lower case",
                "merge the folders, or move one away",
            )
        return os.path.join(place, alike[0]) if alike else None

    def listing(
        self, place: bytes, *, keep: bool = True
    ) -> tuple[list[bytes], Entries]:
        """Return the names of the subdirectories of a directory, and its other entries.

        Args:
          place: Path of the directory, relative to the data set.
          keep: Whether to cache the result.
        """
        if place in self._listings:
            return self._listings[place]
        folders: list[bytes] = []
        others: Entries = []
        entries = self._problems.attempt(self._folder.entries, place) or ()
        above = self._folder.identities(place) if entries else ()
        for entry in entries:
            if entry.name.startswith(b"."):
                self._num_hidden += 1
                continue
            name = os.path.join(place, entry.name)
            is_folder = self._problems.attempt(self._folder.is_folder, name, entry)
            if is_folder is None:
                continue
            if not is_folder:
                others.append(entry)
            elif entry.name.lower() in LEFT_BEHIND:
                self._left_behind.append(name)
            elif (
                inode := self._problems.attempt(self._folder.identity, name)
            ) in above:
                self._loops.append(name)
            elif inode is not None:
                folders.append(entry.name)
        if keep:
            self._listings[place] = folders, others
        return folders, others
