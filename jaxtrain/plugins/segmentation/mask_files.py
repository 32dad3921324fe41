"""`masks:DIR`: images in DIR/images, and masks with the same names in DIR/masks."""

import dataclasses
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from jaxtrain.config import DataConfig
from jaxtrain.data.classes import SPLITS
from jaxtrain.data.files import StoredFile
from jaxtrain.data.folder_scan import FolderScan
from jaxtrain.data.image_files import (
    FileNames,
    Folder,
    ImageFileStore,
    digest,
    shown,
)
from jaxtrain.data.include import Include
from jaxtrain.data.problems import Problems
from jaxtrain.data.read_files import read_unless_large
from jaxtrain.data.slices import draws_of_names
from jaxtrain.data.stores import Opened
from jaxtrain.data.text import nfc_bytes
from jaxtrain.errors import UserError
from jaxtrain.plugins.segmentation.masked_store import make_masked
from jaxtrain.plugins.segmentation.pixel_classes import StoredMask, find_classes

IMAGES, MASKS = b"images", b"masks"
LAYOUT = (
    "images/photo.jpg and masks/photo.png or, with splits, images/train/photo.jpg and "
    "masks/train/photo.png, likewise validation and test"
)

# (path relative to the root of the data set, size in bytes).
SizedFile = tuple[bytes, int]


class SplitFolder(NamedTuple):
    """Files of one split.

    Attributes:
      place: Directory of the split, relative to the root of the data set.
      files: Path relative to `place`, without extension -> file.
    """

    place: bytes
    files: dict[bytes, SizedFile]


@dataclass(frozen=True)
class MaskFiles:
    """Store of mask files, in the order of the images.

    Attributes:
      root: Directory of the data set.
      names: Paths of the masks relative to `root`.
    """

    root: str
    names: FileNames

    def read(self, indices: np.ndarray) -> list[StoredMask]:
        root = os.fsencode(self.root)
        paths = [os.path.join(root, self.names[i]) for i in indices.tolist()]
        return [StoredFile(shown(path), read_unless_large(path)) for path in paths]


def open_masks(name: str, config: DataConfig) -> Opened:
    """Open a data set of images and masks in two directories, matched by file name.

    Raises:
      UserError: The directories are missing or have invalid files; one message lists
        all problems.
    """
    source = config.source
    folder = Folder(os.path.expanduser(name), config)
    include, problems = Include(config), Problems(source)
    scan = FolderScan(folder, include, problems)
    every = Include(dataclasses.replace(config, include=None))
    mask_scan = FolderScan(folder, every, problems)
    images_place, masks_place = (_folder_of(source, scan, x) for x in (IMAGES, MASKS))
    images = _splits(scan, images_place, problems)
    masks = _splits(mask_scan, masks_place, problems)
    pairs = {
        split: _pairs(
            of_split,
            _drop_unread(masks.get(split), of_split, scan.unread()),
            problems,
            every=config.include is None,
        )
        for split, of_split in images.items()
    }
    for split in masks.keys() - images.keys():
        problems.add(
            f"{shown(masks[split].place)} has no matching directory of images",
            "add the images, or move the masks away",
        )
    problems.check()
    include.check_all_met()
    if not pairs["train"]:
        raise UserError(
            f"{source} has no training image{include.hint}: expected {LAYOUT}"
            + "".join(f"; {r.title}: {r.text}" for r in scan.remarks())
        )
    files: list[tuple[SizedFile, SizedFile]] = []
    splits = {}
    for split, some in pairs.items():
        # Shuffle, so that a slice such as train[:90%] has images from all directories.
        draws = draws_of_names(image for (image, _), _ in some)
        order = np.argsort(draws, kind="stable")
        splits[split] = [len(files) + np.arange(len(some))]
        files += [some[i] for i in order.tolist()]
    names, mask_names = (
        FileNames.join([pair[part][0] for pair in files]) for part in (0, 1)
    )
    base = ImageFileStore(folder.root, names, np.zeros(len(files), np.int32), {})
    remarks = (*scan.remarks(), *mask_scan.remarks())
    return make_masked(
        config,
        base,
        MaskFiles(folder.root, mask_names),
        splits,
        find_classes(config, folder.root),
        digest(file for pair in files for file in pair),
        remarks=tuple(remark for remark in remarks if remark.title != "nested"),
        facts={"mixed": True},
    )


def _folder_of(source: str, scan: FolderScan, name: bytes) -> bytes:
    place = scan.folder_called(b"", name)
    if place is None:
        raise UserError(
            f"{source} has no directory {shown(name)}: expected {LAYOUT}; for other "
            "layouts give csv:FILE, a table with the columns path and mask"
        )
    return place


def _splits(scan: FolderScan, top: bytes, problems: Problems) -> dict[str, SplitFolder]:
    """Group the files in the directory `top` by split.

    Each split is a subdirectory. Without a subdirectory `train`, all files belong to
    the training split.
    """
    folders, _ = scan.listing(top)
    named = {name: SPLITS.get(shown(name).lower()) for name in folders}
    if "train" not in named.values():
        return {"train": SplitFolder(top, _by_stem(scan, top, problems))}
    scan.ignore_files(top)
    found: dict[str, SplitFolder] = {}
    for name, split in named.items():
        place = os.path.join(top, name)
        if split is None:
            problems.add(
                f"{shown(place)} is not a split ({', '.join(SPLITS)})",
                "rename the directory, or move it away",
            )
        elif split in found:
            problems.add(
                f"{shown(found[split].place)} and {shown(place)} are both the {split} "
                "split",
                "merge the two directories, or move one away",
            )
        else:
            found[split] = SplitFolder(place, _by_stem(scan, place, problems))
    return found


def _by_stem(
    scan: FolderScan, place: bytes, problems: Problems
) -> dict[bytes, SizedFile]:
    found: dict[bytes, SizedFile] = {}
    for name, size in scan.images(place):
        stem = nfc_bytes(os.path.splitext(os.path.relpath(name, place))[0])
        first, _ = found.setdefault(stem, (name, size))
        if first != name:
            problems.add(
                f"{shown(first)} and {shown(name)} differ only in their extensions",
                "rename one of the two files, as images and masks are matched by name",
            )
    return found


def _drop_unread(
    masks: SplitFolder | None, images: SplitFolder, unread: Iterable[bytes]
) -> SplitFolder | None:
    """Drop masks whose images, `unread`, have unsupported formats."""
    if masks is None:
        return None
    stems = {
        os.path.splitext(os.path.relpath(name, images.place))[0] for name in unread
    }
    files = {stem: file for stem, file in masks.files.items() if stem not in stems}
    return masks._replace(files=files)


def _pairs(
    images: SplitFolder, masks: SplitFolder | None, problems: Problems, *, every: bool
) -> list[tuple[SizedFile, SizedFile]]:
    """Pair the images of a split with their masks.

    Args:
      images: Images of the split.
      masks: Masks of the split; None if their directory is missing.
      problems: Collector to which unpaired files are added.
      every: Whether a mask without an image is a problem; False if `data.include`
        selects images.
    """
    known = {} if masks is None else masks.files
    fix = "give each image a mask of the same name, and each mask an image"
    _report_unpaired(images.files, known, "mask", problems, fix)
    if every:
        _report_unpaired(known, images.files, "image", problems, fix)
    both = sorted(images.files.keys() & known.keys())
    return [(images.files[stem], known[stem]) for stem in both]


def _report_unpaired(
    files: dict[bytes, SizedFile],
    partners: Iterable[bytes],
    what: str,
    problems: Problems,
    fix: str,
) -> None:
    for stem in sorted(files.keys() - set(partners)):
        problems.add(f"{shown(files[stem][0])} has no {what}", fix)
