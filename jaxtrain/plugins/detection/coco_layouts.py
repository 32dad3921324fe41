"""Directory layouts of COCO data sets, as written by common tools."""

import os
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from jaxtrain.data.classes import SPLITS
from jaxtrain.data.image_files import in_any_case, shown
from jaxtrain.errors import UserError

# Names of annotation files, case-insensitive: instances_NAME.json (COCO, CVAT) or
# NAME.json, where NAME is a split with an optional suffix, such as train2017.
INSTANCES = re.compile(r"instances_(.+)\.json", re.IGNORECASE)
SPLIT_NAME = re.compile(rf"({'|'.join(SPLITS)})(?:[\d_.-].*)?", re.IGNORECASE)
# Roboflow's annotation file, next to the images of each split.
ROBOFLOW = "_annotations.coco.json"
# CVAT's file name, without extension, for a data set without splits.
WHOLE = "default"
ANNOTATIONS = ("annotations", "annotation", "labels")
LAYOUT = (
    "annotations/instances_train*.json and, with splits, _val*.json, _test*.json; or "
    f"train/{ROBOFLOW}, valid/, test/; or one JSON file"
)


class CocoFile(NamedTuple):
    """Annotation file of a split.

    Attributes:
      split: Name of the split.
      path: Path of the file.
      places: Candidate image directories relative to the root, likeliest first.
    """

    split: str
    path: str
    places: tuple[str, ...]


def find_files(source: str, place: str) -> list[CocoFile]:
    """Find the annotation files of a data set, training split first.

    Args:
      source: Data source, which prefixes messages.
      place: Directory of the data set, or path of its only annotation file.

    Raises:
      UserError: There is no training split, or a split has two files.
    """
    if not os.path.isdir(place):
        match = INSTANCES.fullmatch(os.path.basename(place))
        name = match[1] if match else os.path.basename(os.path.dirname(place))
        return [CocoFile("train", place, _places(name, _split_of(name) or ""))]
    found: dict[str, CocoFile] = {}
    there = annotation_files(place)
    for name, path in there:
        split = _split_of(name)
        if split is None and (len(there) == 1 or name.lower() == WHOLE):
            split = name.lower()
        if split is None:
            continue
        kind = SPLITS.get(split, "train")
        if kind in found:
            raise UserError(
                f"{source}: {shown(found[kind].path)} and {shown(path)} are both the "
                f"{kind} split: move one file away, or give one file as coco:FILE"
            )
        found[kind] = CocoFile(kind, path, _places(name, split))
    if "train" not in found:
        told = ", ".join(os.path.relpath(path, place) for _, path in there)
        raise UserError(f"{source}: expected {LAYOUT}; found {shown(told) or 'none'}")
    return [found[split] for split in dict.fromkeys(SPLITS.values()) if split in found]


def root_of(place: str) -> str:
    """Return the directory that the image paths of a data set are relative to."""
    is_folder = os.path.isdir(place)
    folder = place if is_folder else os.path.dirname(place) or "."
    # A directory named `labels` is itself the root. For a file in a directory named
    # `labels`, the root is the parent of this directory.
    annotation_names = ANNOTATIONS[:2] if is_folder else ANNOTATIONS
    name = os.path.basename(os.path.abspath(folder)).lower()
    return os.path.join(folder, os.pardir) if name in annotation_names else folder


def is_coco(place: str, names: Iterable[str]) -> bool:
    """Whether a directory with the entries `names` is a COCO data set."""
    for name in names:
        folder = os.path.join(place, name)
        if name.lower() == ROBOFLOW:
            return True
        if not os.path.isdir(folder):
            continue
        if name.lower() in ANNOTATIONS and any(map(INSTANCES.fullmatch, _json(folder))):
            return True
        if name.lower() in SPLITS and any(n.lower() == ROBOFLOW for n in _json(folder)):
            return True
    return False


def folder_below(root: str, place: str) -> str | None:
    """Find the directory `root`/`place`; return its path relative to `root`, or None.

    Names match case-insensitively; an exact match takes precedence.
    """
    found = ""
    for part in filter(None, place.split("/")):
        path = in_any_case(os.path.join(root, found), part)
        if path is None:
            return None
        found = os.path.join(found, os.path.basename(path))
    return found if os.path.isdir(os.path.join(root, found)) else None


def annotation_files(place: str) -> list[tuple[str, str]]:
    """Return (name, path) of each annotation file, such as (train2017, FILE)."""
    for name in ANNOTATIONS:
        within = folder_below(place, name)
        if within is not None:
            found = _named(os.path.join(place, within))
            if found:
                return found
    found = []
    for name in sorted(os.listdir(place)):
        folder = os.path.join(place, name)
        files = _json(folder) if name.lower() in SPLITS else []
        chosen = [file for file in files if file.lower() == ROBOFLOW] or files
        if len(chosen) == 1:
            found.append((name, os.path.join(folder, chosen[0])))
    return found or _named(place)


def _named(folder: str) -> list[tuple[str, str]]:
    """Return (name, path) of each annotation file directly in a directory."""
    files = _json(folder)
    instances = [(INSTANCES.fullmatch(name), name) for name in files]
    named = [(match[1], name) for match, name in instances if match is not None]
    if not named:
        stems = [(os.path.splitext(name)[0], name) for name in files]
        named = [(stem, name) for stem, name in stems if _split_of(stem)]
    if not named and len(files) == 1:
        named = [(WHOLE, files[0])]
    return [(stem, os.path.join(folder, name)) for stem, name in named]


def _json(folder: str) -> list[str]:
    """Return the names of the JSON files in a directory, except hidden files."""
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    return [n for n in names if n.lower().endswith(".json") and not n.startswith(".")]


def _split_of(name: str) -> str | None:
    """Return the split in a name such as train2017, in lower case, or None."""
    match = SPLIT_NAME.fullmatch(name)
    return match[1].lower() if match else None


def _places(name: str, split: str) -> tuple[str, ...]:
    """Return the usual image directories of a split, relative to the root.

    Args:
      name: Split with suffix, from the name of the annotation file: train2017.
      split: Split without suffix: train.
    """
    names: Sequence[str] = [part for part in dict.fromkeys((name, split)) if part]
    within = [f"images/{part}" for part in names]
    below = [f"{part}/images" for part in names]
    return (*names, *within, *below, "images", "data", "")
