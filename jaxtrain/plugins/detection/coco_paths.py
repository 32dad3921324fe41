"""Resolution of image paths written on another machine or operating system."""

import os
import re
from collections.abc import Iterator, Sequence

from jaxtrain.data.image_files import LEADS_OUT, OUTSIDE, Folder, shown
from jaxtrain.data.problems import UnusableError
from jaxtrain.plugins.detection.coco_layouts import folder_below

DRIVE = re.compile(rb"[A-Za-z]:")


class ImageFinder:
    """Resolver of image paths in annotation files.

    Args:
      folder: Root directory; files outside it require `allow_outside`.
      places: Candidate image directories relative to the root, likeliest first.
    """

    def __init__(self, folder: Folder, places: Sequence[str]):
        self._folder, self._root = folder, os.fsencode(folder.root)
        found = (folder_below(folder.root, place) for place in places)
        there = dict.fromkeys(place for place in found if place is not None)
        self._places = [*map(os.fsencode, there)]

    def find(self, name: bytes) -> bytes:
        """Return the path of an image relative to the root directory.

        Files with paths from other machines are found by their last path components.

        Raises:
          UnusableError: The file does not exist, is not a regular file, or is outside
            the root directory.
        """
        for path in self._candidates(name):
            if os.path.lexists(os.path.join(self._root, path)):
                self._folder.size(path)
                return path
        if _is_outside(os.path.normpath(name)):
            text = f"{shown(name)} is outside the directory of the data set"
            raise UnusableError(text, OUTSIDE, LEADS_OUT)
        text = f"{shown(name)}: No such file or directory"
        fix = "add the file, set data.images_dir, or remove the entry"
        raise UnusableError(text, fix, "that do not exist")

    def _candidates(self, name: bytes) -> Iterator[bytes]:
        for given in dict.fromkeys((name, name.replace(b"\\", b"/"))):
            relative = self._folder.relative(os.path.normpath(given))
            if not _is_outside(relative):
                yield from (os.path.join(place, relative) for place in self._places)
            elif self._folder.allow_outside:
                yield relative
        parts = [
            part
            for part in name.replace(b"\\", b"/").split(b"/")
            if part not in (b"", b".", b"..") and not DRIVE.fullmatch(part)
        ]
        for start in range(len(parts)):
            rest = os.path.join(*parts[start:])
            yield from (os.path.join(place, rest) for place in self._places)


def _is_outside(path: bytes) -> bool:
    """Whether a normalized relative path leads out of its base directory."""
    return path.startswith((b"/", b"../")) or path in (b"..", b".")
