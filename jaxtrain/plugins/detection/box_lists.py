"""Validation of annotated boxes, and construction of a `BoxFileStore`."""

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxtrain.config import DataConfig
from jaxtrain.data.boxes import CATEGORY_IDS, NAMES, NUM_BOXES
from jaxtrain.data.image_files import FileNames, Folder, digest, listed, shown
from jaxtrain.data.problems import Problems, UnusableError
from jaxtrain.data.slices import NamedSplits, check_train
from jaxtrain.data.stores import Opened, Remark
from jaxtrain.errors import UserError
from jaxtrain.plugins.detection.box_store import BoxFileStore
from jaxtrain.plugins.segmentation import upright

# Maximum height and width of an image in pixels; larger values are invalid.
MAX_SIDE = 2**24
# Rounding tolerance: fraction of the image size by which a box may exceed the image.
ROUNDING = 0.005
MEND = "correct or remove the box"


class ListedBox(NamedTuple):
    """A validated box of an annotation file.

    Attributes:
      corners: Left, top, right and bottom; in pixels if the image has a `size`, else
        normalized to 0 to 1.
      kind: Index of the class.
      crowd: Whether the box covers a crowd of objects (`iscrowd` of COCO).
    """

    corners: tuple[float, float, float, float]
    kind: int
    crowd: bool = False


class ListedImage(NamedTuple):
    """An image of an annotation file, with its boxes.

    Attributes:
      where: Location of the image's entry, or path of the image, for messages.
      path: Path relative to the root of the data set.
      size: Height and width in pixels; None for normalized boxes.
      boxes: Validated boxes of the image.
    """

    where: str
    path: bytes
    size: tuple[int, int] | None
    boxes: list[ListedBox]


def corners(
    left: float, top: float, width: float, height: float
) -> tuple[float, float, float, float]:
    """Return the left, top, right and bottom of a box, clipped to the image.

    Arguments and results are fractions of the image's width or height.

    Raises:
      UnusableError: The box has no area, or lies outside its image.
    """
    if not all(map(math.isfinite, (left, top, width, height))):
        raise UnusableError("a box with non-finite coordinates", MEND)
    told = f"a box [{left:g}, {top:g}, {width:g}, {height:g}]"
    if width <= 0 or height <= 0:
        raise UnusableError(f"{told} has no area", MEND)
    right, bottom = left + width, top + height
    least, most = min(left, top), max(right, bottom) - 1
    if least < -ROUNDING or most > ROUNDING:
        raise UnusableError(f"{told} is outside the image", MEND)
    found = max(left, 0.0), max(top, 0.0), min(right, 1.0), min(bottom, 1.0)
    if found[2] <= found[0] or found[3] <= found[1]:
        raise UnusableError(f"{told} is outside the image", MEND)
    return found


def to_store(
    config: DataConfig,
    root: str,
    images: dict[str, list[ListedImage]],
    names: Sequence[str],
    category_ids: Sequence[int],
    problems: Problems,
    remarks: Sequence[Remark] = (),
) -> Opened:
    """Return the `BoxFileStore` of the images, and the image indices of each split.

    Args:
      config: `data` section of the config.
      root: Directory of the images.
      images: Split -> images, with their boxes.
      names: Names of the classes.
      category_ids: Category id of each class in the annotation files.
      problems: Problems collected so far.
      remarks: Earlier remarks for the user.

    Raises:
      UserError: The data set is invalid; the message lists all problems.
    """
    splits: NamedSplits = {}
    images, duplicates = _drop_duplicates(images)
    every = [one for some in images.values() for one in some]
    start = 0
    for split, some in images.items():
        splits[split] = [np.arange(start, start + len(some))]
        start += len(some)
    sizes = _file_sizes(Folder(root, config), every, problems)
    _check_counts(config, every, problems)
    class_remarks, names, numbers = _drop_unused_classes(
        config, images, names, problems
    )
    problems.check()
    boxes = [box for one in every for box in one.boxes]
    kinds = np.array([box.kind for box in boxes], np.int64)
    counts = [len(one.boxes) for one in every]
    facts = {
        NAMES: tuple(names),
        CATEGORY_IDS: tuple(
            category_ids[i] for i in np.flatnonzero(numbers >= 0).tolist()
        ),
        NUM_BOXES: max(counts),
        "digest": _digest(every, sizes),
    }
    in_pixels = every[0].size is not None
    store = BoxFileStore(
        root=root,
        file_names=FileNames.join([one.path for one in every]),
        boxes=np.array([box.corners for box in boxes], np.float32).reshape(-1, 4),
        classes=numbers[kinds].astype(np.int32),
        crowd=np.array([box.crowd for box in boxes], bool),
        ends=np.cumsum(counts),
        sizes=np.array([one.size for one in every], np.int32) if in_pixels else None,
        facts=facts,
        drawn_on_stored=config.boxes_drawn_on == upright.STORED,
    )
    turned = upright.remarks_on(config, store, np.flatnonzero(counts), "boxes")
    told = (*problems.remarks, *remarks, *duplicates, *class_remarks, *turned)
    return dataclasses.replace(store, remarks=told), splits


def _drop_duplicates(
    images: dict[str, list[ListedImage]],
) -> tuple[dict[str, list[ListedImage]], list[Remark]]:
    """Return the images without duplicate boxes, and a remark on the duplicates."""
    found = {
        split: [one._replace(boxes=[*dict.fromkeys(one.boxes)]) for one in some]
        for split, some in images.items()
    }
    lost = {
        old.where: num
        for split, some in images.items()
        for old, new in zip(some, found[split], strict=True)
        if (num := len(old.boxes) - len(new.boxes))
    }
    if not lost:
        return images, []
    text = f"{sum(lost.values()):,}, each used once: {listed(lost)}"
    return found, [Remark("boxes listed twice", text, serious=False)]


def _digest(images: list[ListedImage], sizes: list[int]) -> str:
    """Return the SHA-256 hash of file names, file sizes and boxes."""
    told = (repr((one.size, one.boxes)).encode() for one in images)
    known = (b"\0".join((one.path, x)) for one, x in zip(images, told, strict=True))
    return digest(zip(known, sizes, strict=True))


def _file_sizes(
    folder: Folder, images: list[ListedImage], problems: Problems
) -> list[int]:
    """Return the size of each image file in bytes; report missing files as problems."""
    return [
        problems.attempt(folder.size, one.path, where=one.where) or 0 for one in images
    ]


def _check_counts(
    config: DataConfig, images: list[ListedImage], problems: Problems
) -> None:
    """Report images with more boxes than `data.max_boxes`."""
    for one in images:
        if len(one.boxes) > config.max_boxes:
            problems.add(
                f"{shown(one.path)} has {len(one.boxes)} boxes, more than "
                f"data.max_boxes = {config.max_boxes}",
                "increase data.max_boxes, or remove boxes",
                one.where,
            )


def _drop_unused_classes(
    config: DataConfig,
    images: dict[str, list[ListedImage]],
    names: Sequence[str],
    problems: Problems,
) -> tuple[list[Remark], list[str], np.ndarray]:
    """Drop classes without boxes, such as the supercategories of some exports.

    Returns:
      Remarks; the names of the classes with boxes; and the new index of each old class,
      -1 for dropped classes.
    """
    if not images.get("train"):
        problems.check()
    check_train(config.source, [split for split, some in images.items() if some])
    counts = {
        split: np.bincount(
            [box.kind for one in some for box in one.boxes], minlength=len(names)
        )
        for split, some in images.items()
    }
    used = np.sum(list(counts.values()), axis=0) > 0
    remarks = list[Remark]()
    for split, found in counts.items():
        lacking = np.flatnonzero((found > 0) & (counts["train"] == 0))
        if len(lacking):
            told = listed(names[i] for i in lacking.tolist())
            text = (
                f"{told}: the {split} split has boxes of these classes, but the "
                "training split has none"
            )
            remarks.append(Remark(f"only in {split}", text, serious=True))
    if not used.any() and not problems:
        raise UserError(
            f"{config.source} has no boxes in the training split: check the annotation "
            "files"
        )
    numbers = np.where(used, np.cumsum(used) - 1, -1)
    unused = [names[i] for i in np.flatnonzero(~used).tolist()]
    if unused:
        text = f"{listed(unused)}, which have no boxes"
        remarks.append(Remark("classes left out", text, serious=False))
    return remarks, [names[i] for i in np.flatnonzero(used).tolist()], numbers
