"""`csv:FILE`: image files listed in a table, with targets and splits.

The column `label` holds a class, or several labels separated by `data.label_separator`.
Alternatively, targets are numeric columns (`data.targets`), or mask files listed in a
column `mask`.
"""

import os
import re
from collections.abc import Sequence

import numpy as np

from jaxtrain.config import DataConfig
from jaxtrain.data import classes, columns
from jaxtrain.data.classes import SPLITS
from jaxtrain.data.csv_rows import CsvRow, read_rows
from jaxtrain.data.image_files import (
    FileNames,
    Folder,
    ImageFileStore,
    digest,
    encoded_name,
    shown,
)
from jaxtrain.data.include import Include
from jaxtrain.data.problems import Problems, Remark
from jaxtrain.data.read_files import MAX_FILE_BYTES
from jaxtrain.data.slices import NamedSplits
from jaxtrain.data.stores import Opened
from jaxtrain.data.target_images import TARGET_IMAGES, TargetImages
from jaxtrain.data.text import read_user_text
from jaxtrain.data.unlabelled import NO_LABEL, missing_texts
from jaxtrain.errors import UserError

_NUMBER = re.compile(r"0|[1-9][0-9]*")


def open_csv(name: str, config: DataConfig) -> Opened:
    """Open images listed in a table with the columns path, label and optionally split.

    The columns named in `data.targets` replace `label`. Without `data.targets` and
    `label`, the targets are the mask files in the column `mask`.

    Raises:
      UserError: The table is unreadable, or lists unusable files. The message lists all
        problems.
    """
    source = config.source
    path = os.path.expanduser(name)
    folder = Folder(os.path.dirname(path) or ".", config)
    include, problems = Include(config), Problems(source)
    text = read_user_text(path, source, MAX_FILE_BYTES)
    problems.remarks += text.remarks(path)
    table = read_rows(folder, text, config, problems)
    rows = [row for row in table if include.keeps(row.path)]
    _check_paths_differ(rows, problems)
    sizes = [
        problems.attempt(folder.size, row.path, where=f"line {row.line}") or 0
        for row in rows
    ]
    problems.check()
    include.check_all_met()
    if not rows:
        raise UserError(
            f"{source} lists no image{include.hint}: add rows with paths of images"
        )
    split_of = np.array([row.split for row in rows])
    splits = {
        split: [np.flatnonzero(split_of == split)]
        for split in dict.fromkeys(SPLITS.values())
        if split in split_of
    }
    known = (b"\0".join(map(encoded_name, (r.path, *r.texts, r.split))) for r in rows)
    digest_of_set = digest(zip(known, sizes, strict=True))
    if (kind := rows[0].target_images) is not None:
        return _with_images(
            TARGET_IMAGES[kind](),
            folder,
            config,
            rows,
            splits,
            digest_of_set,
            problems.remarks,
        )
    if config.targets:
        numbers = np.array([row.values for row in rows], np.float64)
        names, (target, origin) = config.targets, columns.centred(numbers)
    else:
        (target, names), origin = _labels(config, rows), ()
    if target.ndim == 1:
        facts = classes.facts(source, splits, target, names, digest_of_set)
    else:
        facts = columns.facts(source, splits, names, digest_of_set, origin)
    files = FileNames.join([row.path for row in rows])
    remarks = tuple(problems.remarks)
    return ImageFileStore(folder.root, files, target, facts, remarks), splits


def _with_images(
    kind: TargetImages,
    folder: Folder,
    config: DataConfig,
    rows: Sequence[CsvRow],
    splits: NamedSplits,
    digest_of_set: str,
    remarks: Sequence[Remark],
) -> Opened:
    """Open images with target images, such as masks; check that target files exist."""
    problems = Problems(config.source)
    for row in rows:
        problems.attempt(folder.size, row.target_file, where=f"line {row.line}")
    problems.check()
    names, targets = (
        FileNames.join([getattr(row, field) for row in rows])
        for field in ("path", "target_file")
    )
    images = ImageFileStore(folder.root, names, np.zeros(len(rows), np.int32), {})
    return kind.from_files(
        config, folder, images, targets, splits, digest_of_set, tuple(remarks)
    )


def _labels(
    config: DataConfig, rows: Sequence[CsvRow]
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return the targets of the rows, and the class or label names.

    Targets are class indices, int32 (N,), or multi-hot labels, float32 (N, labels).
    """
    if config.label_separator is not None:
        texts = [row.texts[0].split(config.label_separator) for row in rows]
        labels = [[text.strip() for text in cells if text.strip()] for cells in texts]
        names = _in_order({label for cells in labels for label in cells})
        return columns.multi_hot(labels, names), tuple(map(shown, names))
    texts = [row.texts[0] for row in rows]
    missing = missing_texts(texts).tolist()
    known = [text for text, none in zip(texts, missing, strict=True) if not none]
    classes.refuse_measurements(config.source, known)
    names = _in_order(set(known))
    numbers = {label: i for i, label in enumerate(names)}
    classes_of_rows = [
        NO_LABEL if n else numbers[t] for t, n in zip(texts, missing, strict=True)
    ]
    return np.array(classes_of_rows, np.int32), tuple(map(shown, names))


def _check_paths_differ(rows: list[CsvRow], problems: Problems) -> None:
    lines: dict[bytes, int] = {}
    for row in rows:
        first = lines.setdefault(row.path, row.line)
        if first != row.line:
            problems.add(
                f"{shown(row.path)} is already in line {first}",
                "list each image once",
                f"line {row.line}",
            )


def _in_order(labels: set[str]) -> list[str]:
    if all(map(_NUMBER.fullmatch, labels)):
        # Numbers are sorted as text, shortest first: `int` limits the number of digits.
        return sorted(labels, key=lambda text: (len(text), text))
    return sorted(labels)
