"""`folder:DIR`: image files, one directory per class."""

import os
from collections.abc import Iterable

import numpy as np

from jaxtrain.config import DataConfig
from jaxtrain.data import classes, formats, layouts
from jaxtrain.data.classes import SPLITS
from jaxtrain.data.file_kind import IMAGES, FileKind
from jaxtrain.data.folder_scan import Classes, FolderScan
from jaxtrain.data.image_files import (
    FileNames,
    Folder,
    ImageFileStore,
    digest,
    listed,
    shown,
)
from jaxtrain.data.include import Include
from jaxtrain.data.problems import Problems
from jaxtrain.data.slices import draws_of_names
from jaxtrain.data.stores import Opened
from jaxtrain.data.text import nfc_bytes
from jaxtrain.errors import UserError


def open_folder(name: str, config: DataConfig) -> Opened:
    """Open images in one directory per class, optionally below train/, val/ and test/.

    Raises:
      UserError: The path is not a directory, or the directory holds unusable files. The
        message lists all problems.
    """
    return open_files(name, config, IMAGES)


def open_files(name: str, config: DataConfig, kind: FileKind) -> Opened:
    """Open files of one type in one directory per class; see `open_folder`.

    Args:
      name: Path of the directory.
      config: Data section of the config.
      kind: Type of the files, such as images or audio files.
    """
    source = config.source
    folder = Folder(os.path.expanduser(name), config)
    include, problems = Include(config), Problems(source)
    scan = FolderScan(folder, include, problems, kind)
    places = _split_folders(scan, problems)
    by_split = {split: scan.classes(place) for split, place in places.items()}
    # A split without class directories is dropped: its images are unlabelled, as in
    # Kaggle's test sets.
    by_split = {
        split: group for split, group in by_split.items() if group or split == "train"
    }
    if not problems:
        include.check_all_met()
    if not problems:
        _check_classes(source, folder.root, by_split.values())
    _check_train(source, by_split["train"], places["train"], scan, problems)
    used = sorted(
        {c for group in by_split.values() for c, files in group.items() if files}
    )
    # macOS may store names in another Unicode normal form (NFD).
    folders = sorted({*map(nfc_bytes, used)})
    first = os.path.join(places["train"], *used[:1])
    if len(folders) == 1 and scan.nested_in(first):
        # The nested directories are probably the classes.
        raise UserError(
            f"{source} has only one class folder, {shown(folders[0])}: expected two or "
            "more; if the subfolders are the classes, give "
            f"{source.partition(':')[0]}:{os.path.join(name, shown(first))}"
        )
    numbers = {class_folder: i for i, class_folder in enumerate(folders)}
    files: list[tuple[bytes, int]] = []
    labels: list[np.ndarray] = []
    splits = {}
    for split, of_split in by_split.items():
        start = len(files)
        for class_folder, files_of_class in of_split.items():
            files += files_of_class
            number = numbers.get(nfc_bytes(class_folder), -1)
            labels.append(np.full(len(files_of_class), number, np.int32))
        # Examples are ordered by a hash of their name, so that a slice such as
        # train[:90%] has all classes. TFDS also shuffles the examples that it prepares.
        draws = draws_of_names(name for name, _ in files[start:])
        splits[split] = [start + np.argsort(draws, kind="stable")]
    label, class_names = np.concatenate(labels), [shown(c) for c in folders]
    found_facts = classes.facts(source, splits, label, class_names, digest(files))
    facts = {**found_facts, "mixed": True}
    names = FileNames.join([name for name, _ in files])
    return ImageFileStore(folder.root, names, label, facts, scan.remarks()), splits


def _split_folders(scan: FolderScan, problems: Problems) -> dict[str, bytes]:
    """Map each split to the directory that contains its class directories.

    If there is a directory `train` with subdirectories, its siblings are splits, too.
    However, a directory `train` that also holds images is a class, unless a sibling has
    the name of another split.
    """
    names, _ = scan.listing(b"")
    named = {name: SPLITS.get(shown(name).lower()) for name in names}
    others = {*named.values()} - {"train", None}

    def holds_classes(name: bytes) -> bool:
        folders, files = scan.listing(name)
        wanted = any(scan.kind.is_read(file.name) for file in files)
        return bool(folders and (others or not wanted))

    train = [name for name in names if named[name] == "train" and holds_classes(name)]
    if not train:
        return {"train": b""}
    scan.ignore_files(b"")
    places: dict[str, bytes] = {}
    for name, split in named.items():
        if split is None:
            problems.add(
                f"next to {shown(train[0])} there is {shown(name)}, which is not a "
                f"split ({', '.join(SPLITS)})",
                "rename the directory, or move it away",
            )
        elif split in places:
            problems.add(
                f"{shown(places[split])} and {shown(name)} are both the {split} split",
                "merge the two directories, or move one away",
            )
        else:
            places[split] = name
    return places


def _check_classes(source: str, root: str, found: Iterable[Classes]) -> None:
    """Raise UserError if no directory can be a class; see `layouts.is_no_class`."""
    names = sorted({name for one in found for name, files in one.items() if files})
    if names and all(map(layouts.is_no_class, names)):
        raise UserError(layouts.not_classes(source, root, names))


def _check_train(
    source: str, train: Classes, place: bytes, scan: FolderScan, problems: Problems
) -> None:
    hint, ignored = scan.include.hint, scan.ignored
    if not problems and not any(train.values()):
        endings, noun = " ".join(scan.kind.endings()), scan.kind.noun
        other = f"; other files: {len(ignored)}, such as {listed(ignored[:1])}"
        passed = "".join(f"; {r.title}: {r.text}" for r in scan.remarks())
        raise UserError(
            f"{source} has no training {noun}{hint}: expected {scan.kind.layout}, with "
            f"the extensions {endings}{other + passed if ignored else ''}"
        )
    empty = [class_folder for class_folder, files in train.items() if not files]
    if empty:
        starts = tuple(os.path.join(place, name, b"") for name in empty)
        counts = formats.count_endings(n for n in ignored if n.startswith(starts))
        instead = f" (found {formats.describe_counts(counts)})" if counts else ""
        problems.add(
            f"{len(empty)} class folders contain no {scan.kind.noun}{hint}: "
            f"{listed(empty)}{instead}",
            f"add {scan.kind.noun}s, or remove the folders",
        )
    problems.check()
