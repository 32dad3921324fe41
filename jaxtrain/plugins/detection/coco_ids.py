"""Ids of COCO's results: those of the list of the images, or numbers."""

import collections
import contextlib
import dataclasses
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jaxtrain.config import DataConfig
from jaxtrain.config.recipe import is_run, read_run
from jaxtrain.data.image_files import FileNames, Folder, listed, shown
from jaxtrain.data.problems import UnusableError
from jaxtrain.errors import UserError
from jaxtrain.plugins.detection import coco_values
from jaxtrain.plugins.detection.coco import read_lists
from jaxtrain.plugins.detection.coco_layouts import find_files, root_of
from jaxtrain.plugins.detection.coco_paths import ImageFinder
from jaxtrain.plugins.segmentation import upright
from jaxtrain.tasks.outputs import Finder

# The option that names a list, and the kind of source that has one.
OPTION, KIND = "--coco-images", "coco"
# A name of more digits is no number of an image.
MAX_DIGITS = 18

Parts = tuple[bytes, ...]


@dataclass(frozen=True)
class CocoIds:
    """Ids of images and classes.

    Attributes:
      images: Path of an image, as it was given -> its id.
      categories: Id of each class.
      origin: Where the ids of the images come from, in words.
      of_stored: Whether the boxes of the run's data are of the stored pixels, and so
        those of the results, where EXIF turns an image.
    """

    images: dict[bytes, Any]
    categories: tuple[int, ...]
    origin: str
    of_stored: bool = False


def find_ids(
    names: FileNames, finder: Finder, listing: Path | None, workdir: Path
) -> CocoIds:
    """Find the ids of images: in a list, in that of the run's data, or as numbers.

    Args:
      names: Paths of the images.
      finder: Names and ids of the classes of the model.
      listing: JSON file that lists these images, if it was given.
      workdir: Folder of the run or of the model.

    Raises:
      UserError: the list cannot be read, or lacks an image.
    """
    paths = [names[i] for i in range(len(names))]
    # The config of a run need not be readable here, nor a model be of a run.
    data = None
    if is_run(workdir):
        with contextlib.suppress(UserError, OSError):
            data = read_run(workdir).data
    of_stored = data is not None and data.boxes_drawn_on == upright.STORED
    if listing is not None:
        found = _of_list(paths, finder, listing)
        return dataclasses.replace(found, of_stored=of_stored)
    ids, origin = _of_data(paths, data), "as in the data of the run"
    if ids is None:
        ids, origin = _of_names(paths), "the number that a file is called by"
    if ids is None:
        ids = {path: i for i, path in enumerate(paths, start=1)}
        origin = (
            "the number of the image among these, from 1; file_name has its name, and "
            f"{OPTION} FILE.json takes those of a list"
        )
    return CocoIds(ids, finder.category_ids, origin, of_stored)


def _of_list(paths: list[bytes], finder: Finder, listing: Path) -> CocoIds:
    """Ids of a list, whose names are the last parts of the paths of images."""
    source = f"{OPTION} {listing}"
    values = read_lists(source, str(listing), needed=("images",))
    ids, alone = dict[Parts, Any](), collections.defaultdict[bytes, list[Any]](list)
    for value in values["images"]:
        with contextlib.suppress(UnusableError):
            parts = _parts(coco_values.image(value).name)
            ids[parts] = value["id"]
            alone[parts[-1]].append(value["id"])
    found: dict[bytes, Any] = {}
    for path in paths:
        parts = _parts(os.path.abspath(path))
        known = [ids[parts[i:]] for i in range(len(parts)) if parts[i:] in ids]
        # A list of another machine may have other folders.
        known = known or (alone[parts[-1]] if len(alone[parts[-1]]) == 1 else [])
        if known:
            found[path] = known[0]
    lacking = [path for path in paths if path not in found]
    if lacking:
        raise UserError(
            f"{source} lacks {len(lacking):,} of {len(paths):,} images: "
            f"{listed(lacking)}; give the list of these images, or leave it out"
        )
    categories = _categories(source, values.get("categories", []), finder)
    return CocoIds(found, categories, f"as in {listing}")


def _parts(name: bytes) -> Parts:
    """Parts of a path of any system, without those that lead up."""
    parts = name.replace(b"\\", b"/").split(b"/")
    return tuple(part for part in parts if part not in (b"", b".", b".."))


def _categories(source: str, values: list[Any], finder: Finder) -> tuple[int, ...]:
    """Ids of the classes by their names; one that the list lacks keeps its own.

    Raises:
      UserError: that one is the id of another class there.
    """
    known: dict[str, Any] = {}
    for value in values:
        with contextlib.suppress(UnusableError):
            name = shown(coco_values.text(value, "name"))
            known[name] = coco_values.id_of(value, "id")
    found = []
    for name, own in zip(finder.names, finder.category_ids, strict=True):
        if name not in known and own in known.values():
            raise UserError(
                f"{source} has no category {name!r}, and its id in training, {own}, is "
                "that of another there: give a list with the categories of training"
            )
        found.append(known.get(name, own))
    return tuple(found)


def _of_data(paths: list[bytes], config: DataConfig | None) -> dict[bytes, Any] | None:
    """Ids of images of the data that a run was trained on; None if one is not."""
    kind, _, name = ("" if config is None else config.source).partition(":")
    if config is None or kind != KIND:
        return None
    # The data of a run need not be on this machine.
    with contextlib.suppress(UserError, OSError):
        place, wanted = os.path.expanduser(name), {os.path.realpath(p) for p in paths}
        root = os.path.expanduser(config.images_dir or root_of(place))
        known: dict[bytes, Any] = {}
        for file in find_files(config.source, place):
            finder = ImageFinder(Folder(root, config), ("", *file.places))
            for value in read_lists(config.source, file.path, needed=("images",))[
                "images"
            ]:
                with contextlib.suppress(UnusableError):
                    path = finder.find(coco_values.image(value).name)
                    real = os.path.realpath(os.path.join(os.fsencode(root), path))
                    if real in wanted:
                        known[real] = value["id"]
        if wanted <= known.keys():
            return {path: known[os.path.realpath(path)] for path in paths}
    return None


def _of_names(paths: list[bytes]) -> dict[bytes, Any] | None:
    """Numbers that files are called by; None if one has another name, or two the same.

    COCO's own images are called so.
    """
    stems = [os.path.splitext(os.path.basename(path))[0] for path in paths]
    if not all(stem.isdigit() and len(stem) <= MAX_DIGITS for stem in stems):
        return None
    numbers = dict(zip(paths, map(int, stems), strict=True))
    return numbers if len({*numbers.values()}) == len(numbers) else None
