"""Images that a list names by paths of another machine, system or folder."""

import os
import re
from collections.abc import Iterator, Sequence

from jaxtrain.data.image_files import LEADS_OUT, OUTSIDE, Folder, shown
from jaxtrain.data.problems import UnusableError
from jaxtrain.plugins.detection.coco_layouts import folder_below

DRIVE = re.compile(rb"[A-Za-z]:")


class ImageFinder:
    """Finds images by the names that a list has for them, in one folder alone.

    Args:
      folder: Folder of all images; nothing outside is read unless it allows it.
      places: Folders below it that images may lie in, the likeliest first.
    """

    def __init__(self, folder: Folder, places: Sequence[str]):
        self._folder, self._root = folder, os.fsencode(folder.root)
        found = (folder_below(folder.root, place) for place in places)
        there = dict.fromkeys(place for place in found if place is not None)
        self._places = [*map(os.fsencode, there)]

    def find(self, name: bytes) -> bytes:
        """Path of an image below the folder of all.

        A path that leads elsewhere, such as one of another machine, is looked for by
        its last parts.

        Raises:
          UnusableError: It is not there, is not a regular file, or lies outside.
        """
        for path in self._candidates(name):
            if os.path.lexists(os.path.join(self._root, path)):
                self._folder.size(path)
                return path
        if _leaves(os.path.normpath(name)):
            told = f"{shown(name)} leads out of the folder, and is not in it"
            raise UnusableError(told, OUTSIDE, LEADS_OUT)
        told = f"{shown(name)}: No such file or directory"
        fix = "add the file, name its folder by data.images_dir, or take it out"
        raise UnusableError(told, fix, "that are not there")

    def _candidates(self, name: bytes) -> Iterator[bytes]:
        for given in dict.fromkeys((name, name.replace(b"\\", b"/"))):
            plain = self._folder.relative(os.path.normpath(given))
            if not _leaves(plain):
                yield from (os.path.join(place, plain) for place in self._places)
            elif self._folder.allow_outside:
                yield plain
        parts = [
            part
            for part in name.replace(b"\\", b"/").split(b"/")
            if part not in (b"", b".", b"..") and not DRIVE.fullmatch(part)
        ]
        for start in range(len(parts)):
            rest = os.path.join(*parts[start:])
            yield from (os.path.join(place, rest) for place in self._places)


def _leaves(path: bytes) -> bool:
    """Whether a normal path leads out of the folder that it is seen from."""
    return path.startswith((b"/", b"../")) or path in (b"..", b".")
