"""`folder:DIR`: image files, in one folder for each class."""

import os
from typing import NamedTuple

import numpy as np

from jaxtrain.config import DataConfig
from jaxtrain.data import classes
from jaxtrain.data.classes import SPLITS
from jaxtrain.data.image_files import (
    Folder,
    ImageFileStore,
    Names,
    digest,
    listed,
    shown,
)
from jaxtrain.data.include import Include
from jaxtrain.data.split import draws_of_names
from jaxtrain.data.stores import Opened
from jaxtrain.errors import UserError

# Endings of the names of image files, in lower case.
ENDINGS = (
    *(b".jpg", b".jpeg", b".jpe", b".png", b".apng", b".webp"),
    *(b".bmp", b".gif", b".tif", b".tiff"),
)
LAYOUT = (
    "CLASS/image.jpg or, with splits, train/CLASS/image.jpg, validation/... , test/..."
)


class Found(NamedTuple):
    """An image file: its place in the folder, and its size in bytes."""

    name: bytes
    size: int


# The files of each class, by the name of its folder.
Classes = dict[bytes, list[Found]]


def open_folder(name: str, config: DataConfig) -> Opened:
    """Open images that lie in one folder a class, or so in train/, val/ and test/.

    Raises:
      UserError: it is no such folder, or holds what cannot be used.
    """
    if not name:
        raise UserError(f"data.source = {config.source!r}: expected folder:DIR")
    folder, include = Folder(os.path.expanduser(name), config.source), Include(config)
    scan = _Scan(folder, include)
    found = {split: scan.classes(place) for split, place in _places(folder).items()}
    include.check_all_met()
    _check_not_empty(folder, found, scan.ignored, include)
    folders = sorted({c for of in found.values() for c, files in of.items() if files})
    numbers = {class_folder: i for i, class_folder in enumerate(folders)}
    files: list[Found] = []
    labels: list[np.ndarray] = []
    splits = {}
    for split, of_split in found.items():
        start = len(files)
        for class_folder, some in of_split.items():
            files += some
            labels.append(np.full(len(some), numbers.get(class_folder, -1), np.int32))
        # A slice of a split, such as train[:90%], then has files of all classes, as it
        # has of TFDS's sets, which are mixed when they are prepared.
        draws = draws_of_names(file.name for file in files[start:])
        splits[split] = [start + np.argsort(draws, kind="stable")]
    label, class_names = np.concatenate(labels), [shown(c) for c in folders]
    classes.check(config.source, splits, label, class_names)
    whole = digest((f.name for f in files), (f.size for f in files))
    facts = {**classes.facts(class_names, whole), "mixed": True}
    names = Names.join([file.name for file in files])
    return ImageFileStore(folder.root, names, label, facts), splits


def _places(folder: Folder) -> dict[str, bytes]:
    """Return where the classes of each split lie.

    A folder `train` that holds folders and no images makes the others splits, too: one
    with images is a class.
    """
    found = [e.name for e in folder.entries(b"") if folder.is_folder(e.name, e)]
    train = [name for name in found if name.lower() == b"train"]
    if not any(_holds_folders(folder, name) for name in train):
        return {"train": b""}
    places: dict[str, bytes] = {}
    for name in found:
        split = SPLITS.get(shown(name).lower())
        if split is None:
            raise UserError(
                f"{folder.source}: beside {shown(train[0])} there is {shown(name)}, "
                f"which is no split ({', '.join(SPLITS)}): rename it, or move it away"
            )
        if split in places:
            both = f"{shown(places[split])} and {shown(name)}"
            raise UserError(f"{folder.source}: {both} are both the {split} split")
        places[split] = name
    return places


def _holds_folders(folder: Folder, name: bytes) -> bool:
    found = {
        entry.name: folder.is_folder(os.path.join(name, entry.name), entry)
        for entry in folder.entries(name)
    }
    images = [name for name, is_folder in found.items() if not is_folder]
    return any(found.values()) and not any(map(_is_image, images))


def _is_image(name: bytes) -> bool:
    return name.lower().endswith(ENDINGS)


class _Scan:
    """Finds the image files of classes; `ignored` are all other files."""

    def __init__(self, folder: Folder, include: Include):
        self._folder, self._include = folder, include
        self.ignored: list[bytes] = []

    def classes(self, place: bytes) -> Classes:
        """Return the classes that lie at a place, and their files.

        Raises:
          UserError: a folder or a file cannot be used.
        """
        found: Classes = {}
        for entry in self._folder.entries(place):
            name = os.path.join(place, entry.name)
            if self._folder.is_folder(name, entry):
                found[entry.name] = self._images(name)
            else:
                self.ignored.append(name)
        return found

    def _images(self, place: bytes) -> list[Found]:
        files = []
        for entry in self._folder.entries(place):
            name = os.path.join(place, entry.name)
            if self._folder.is_folder(name, entry):
                raise UserError(
                    f"{self._folder.source}: {shown(name)} is a folder inside that of "
                    f"a class: images lie directly there, {LAYOUT}; move them, or list "
                    "them in a csv: file"
                )
            if not _is_image(entry.name):
                self.ignored.append(name)
            elif self._include.keeps(name):
                files.append(Found(name, self._folder.size(name, entry)))
        return files


def _check_not_empty(
    folder: Folder, found: dict[str, Classes], ignored: list[bytes], include: Include
) -> None:
    """Check that there are images, and some of each class to train on.

    Raises:
      UserError: there are none.
    """
    train = found["train"]
    if not any(train.values()):
        endings = b" ".join(ENDINGS).decode()
        other = f"; other files: {len(ignored)}, such as {listed(ignored[:1])}"
        raise UserError(
            f"{folder.source} holds no image to train on{include.told}: expected "
            f"{LAYOUT}, with the endings {endings}{other if ignored else ''}"
        )
    empty = [class_folder for class_folder, files in train.items() if not files]
    if empty:
        raise UserError(
            f"{folder.source}: {len(empty)} folders of classes hold no image"
            f"{include.told}: {listed(empty)}; add images, or remove the folders"
        )
