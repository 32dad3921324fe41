"""Image and category ids of COCO results."""

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
from jaxtrain.plugins.detection.found_boxes import Finder
from jaxtrain.plugins.segmentation import upright

# Option for a file with image ids, and prefix of data sources that have image ids.
OPTION, KIND = "--coco-images", "coco"
# Maximum number of digits of an image id in a file name.
MAX_DIGITS = 18

Parts = tuple[bytes, ...]


@dataclass(frozen=True)
class CocoIds:
    """COCO ids of images and classes.

    Attributes:
      images: Path of an image, as given to `predict` -> image id.
      categories: Category id of each class.
      origin: Description of the source of the image ids.
      on_stored: Whether boxes of the data set and of the results refer to the stored
        pixels, before the EXIF orientation is applied.
    """

    images: dict[bytes, Any]
    categories: tuple[int, ...]
    origin: str
    on_stored: bool = False


def find_ids(
    names: FileNames, finder: Finder, listing: Path | None, workdir: Path
) -> CocoIds:
    """Return the image and category ids for COCO results.

    Image ids come from `listing`. If it is None, they come from the data set of the
    run, else from numeric file names, else from positions in `names`, starting at 1.

    Args:
      names: Paths of the images.
      finder: Names and ids of the model's classes.
      listing: COCO JSON file that lists all images, or None.
      workdir: Directory of the run or the model.

    Raises:
      UserError: The file `listing` cannot be read, or lacks an image.
    """
    paths = [names[i] for i in range(len(names))]
    # Exported models have no run, and the config of a run may be unreadable.
    data = None
    if is_run(workdir):
        with contextlib.suppress(UserError, OSError):
            data = read_run(workdir).data
    on_stored = data is not None and data.boxes_drawn_on == upright.STORED
    if listing is not None:
        found = _ids_from_list(paths, finder, listing)
        return dataclasses.replace(found, on_stored=on_stored)
    ids, origin = _ids_from_data(paths, data), "as in the data set of the run"
    if ids is None:
        ids, origin = _ids_from_names(paths), "the number in the file name"
    if ids is None:
        ids = {path: i for i, path in enumerate(paths, start=1)}
        origin = (
            "the position of the image in this file, from 1, and file_name is the "
            f"path; {OPTION} FILE.json reads the ids from a COCO file"
        )
    return CocoIds(ids, finder.category_ids, origin, on_stored)


def _ids_from_list(paths: list[bytes], finder: Finder, listing: Path) -> CocoIds:
    """Return ids from a COCO file; images match by their last path components."""
    source = f"{OPTION} {listing}"
    values = read_lists(source, str(listing), needed=("images",))
    ids, by_file_name = (
        dict[Parts, Any](),
        collections.defaultdict[bytes, list[Any]](list),
    )
    for value in values["images"]:
        with contextlib.suppress(UnusableError):
            parts = _parts(coco_values.image(value).name)
            ids[parts] = value["id"]
            by_file_name[parts[-1]].append(value["id"])
    found: dict[bytes, Any] = {}
    for path in paths:
        parts = _parts(os.path.abspath(path))
        known = [ids[parts[i:]] for i in range(len(parts)) if parts[i:] in ids]
        # The list may have the directories of another machine: match a unique file
        # name instead.
        known = known or (
            by_file_name[parts[-1]] if len(by_file_name[parts[-1]]) == 1 else []
        )
        if known:
            found[path] = known[0]
    missing = [path for path in paths if path not in found]
    if missing:
        raise UserError(
            f"{source} lacks {len(missing):,} of {len(paths):,} images: "
            f"{listed(missing)}; add these images to the file, or leave {OPTION} out"
        )
    categories = _categories(source, values.get("categories", []), finder)
    return CocoIds(found, categories, f"as in {listing}")


def _parts(name: bytes) -> Parts:
    """Return the components of a POSIX or Windows path, without `.` and `..`."""
    parts = name.replace(b"\\", b"/").split(b"/")
    return tuple(part for part in parts if part not in (b"", b".", b".."))


def _categories(source: str, values: list[Any], finder: Finder) -> tuple[int, ...]:
    """Return the category id of each class, matched by name.

    `values` are the categories of a COCO file. Classes without a category keep their
    ids from the training data.

    Raises:
      UserError: A different category has the id of a class without a category.
    """
    known: dict[str, Any] = {}
    for value in values:
        with contextlib.suppress(UnusableError):
            name = shown(coco_values.text(value, "name"))
            known[name] = coco_values.id_of(value, "id")
    found = []
    for name, training_id in zip(finder.names, finder.category_ids, strict=True):
        if name not in known and training_id in known.values():
            raise UserError(
                f"{source} lacks the category {name!r}, and uses its training id "
                f"{training_id} for another category: give a COCO file with the "
                "training categories"
            )
        found.append(known.get(name, training_id))
    return tuple(found)


def _ids_from_data(
    paths: list[bytes], config: DataConfig | None
) -> dict[bytes, Any] | None:
    """Return the image ids in the COCO data set of a run.

    None if the data set is not COCO, cannot be read, or lacks an image.
    """
    kind, _, name = ("" if config is None else config.source).partition(":")
    if config is None or kind != KIND:
        return None
    # The data set of the run may be missing on this machine.
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


def _ids_from_names(paths: list[bytes]) -> dict[bytes, Any] | None:
    """Return image ids from numeric file names, as in COCO.

    None if a file name is not a number, or if two file names are the same number.
    """
    stems = [os.path.splitext(os.path.basename(path))[0] for path in paths]
    if not all(stem.isdigit() and len(stem) <= MAX_DIGITS for stem in stems):
        return None
    numbers = dict(zip(paths, map(int, stems), strict=True))
    return numbers if len({*numbers.values()}) == len(numbers) else None
