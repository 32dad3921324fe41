"""`csv:FILE`: image files that a table lists, with their targets and splits.

Targets are classes, lists of labels (`data.label_separator`), or columns of numbers
(`data.targets`).
"""

import csv
import io
import os
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from jaxtrain.config import DataConfig
from jaxtrain.data import classes, columns
from jaxtrain.data.classes import SPLITS
from jaxtrain.data.image_files import (
    OUTSIDE,
    FileNames,
    Folder,
    ImageFileStore,
    digest,
    read_file,
    shown,
)
from jaxtrain.data.include import Include
from jaxtrain.data.problems import Problems, UnusableError
from jaxtrain.data.stores import Opened
from jaxtrain.errors import UserError, nearest

PATH, LABEL, SPLIT = "path", "label", "split"
# Of columns; the first whose header has those that are needed.
SEPARATORS = (",", ";", "\t")
_NUMBER = re.compile(r"0|[1-9][0-9]*")


class CsvRow(NamedTuple):
    """A row of the table.

    Attributes:
      line: Number of its line.
      path: Place of the image below the folder of the table.
      texts: What the columns of the targets hold.
      values: The numbers there; () if they are labels.
      split: Name of its split.
    """

    line: int
    path: bytes
    texts: tuple[str, ...]
    values: tuple[float, ...]
    split: str


def open_csv(name: str, config: DataConfig) -> Opened:
    """Open images that a table lists: the columns path, label and, if wanted, split.

    With `data.targets` there are columns of these names in place of `label`.

    Raises:
      UserError: the table cannot be read, or lists what cannot be used; one message has
        all of it.
    """
    source = config.source
    path = os.path.expanduser(name)
    folder = Folder(os.path.dirname(path) or ".", config)
    include, problems = Include(config), Problems(source)
    table = _rows(folder, _text(source, path), config, problems)
    rows = [row for row in table if include.keeps(row.path)]
    _check_paths_differ(rows, problems)
    sizes = [
        problems.attempt(folder.size, row.path, where=f"line {row.line}") or 0
        for row in rows
    ]
    problems.check()
    include.check_all_met()
    if not rows:
        raise UserError(f"{source} lists no image{include.told}")
    split_of = np.array([row.split for row in rows])
    splits = {
        split: [np.flatnonzero(split_of == split)]
        for split in dict.fromkeys(SPLITS.values())
        if split in split_of
    }
    known = (b"\0".join((r.path, *map(_bytes, (*r.texts, r.split)))) for r in rows)
    whole = digest(zip(known, sizes, strict=True))
    target, target_names = _targets(config, rows)
    if target.ndim == 1:
        facts = classes.facts(source, splits, target, target_names, whole)
    else:
        facts = columns.facts(source, splits, target_names, whole)
    names = FileNames.join([row.path for row in rows])
    return ImageFileStore(folder.root, names, target, facts), splits


def _targets(
    config: DataConfig, rows: Sequence[CsvRow]
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return the targets of the rows, and the names of classes or of columns.

    Classes are numbers, int32 (N,); columns float32 (N, columns).
    """
    if config.targets:
        return np.array([row.values for row in rows], np.float32), config.targets
    if config.label_separator is not None:
        texts = [row.texts[0].split(config.label_separator) for row in rows]
        labels = [[text.strip() for text in some if text.strip()] for some in texts]
        names = _in_order({label for some in labels for label in some})
        return columns.of_labels(labels, names), tuple(map(shown, names))
    texts = [row.texts[0] for row in rows]
    classes.refuse_measurements(config.source, texts)
    names = _in_order(set(texts))
    numbers = {label: i for i, label in enumerate(names)}
    return np.array([numbers[t] for t in texts], np.int32), tuple(map(shown, names))


def _text(source: str, path: str) -> str:
    data = read_file(os.fsencode(path))
    if isinstance(data, OSError):
        raise UserError(f"{source}: {data.strerror}, seen from {os.getcwd()}")
    # A name of a file may be of any bytes.
    return data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")


def _rows(
    folder: Folder, text: str, config: DataConfig, problems: Problems
) -> Iterator[CsvRow]:
    """Yield the rows of a table that can be used; what is wrong goes to `problems`."""
    needed = (PATH, *(config.targets or [LABEL]))
    separator = _separator(text, needed)
    reader = csv.reader(io.StringIO(text, newline=""), strict=True, delimiter=separator)
    try:
        header = [column.strip() for column in next(reader, [])]
        _check_header(config, header, needed)
        for fields in filter(None, reader):
            where = f"line {reader.line_num}"
            if len(fields) != len(header):
                told = f"{len(fields)} fields, but {len(header)} columns"
                problems.add(told, "give each row a field a column", where)
                continue
            values = dict(zip(header, fields, strict=True))
            line = reader.line_num
            row = problems.attempt(_row, folder, config, line, values, where=where)
            if row is not None:
                yield row
    except csv.Error as error:
        where = f"line {reader.line_num}"
        problems.add(str(error), "the table ends there: mend it", where)


def _row(
    folder: Folder, config: DataConfig, line: int, values: dict[str, str]
) -> CsvRow:
    path, targets = values[PATH], config.targets
    texts = tuple(values[name].strip() for name in targets or [LABEL])
    one_class = not targets and config.label_separator is None
    if not path or (one_class and not texts[0]):
        empty = LABEL if path else PATH
        raise UnusableError(f"the {empty} is empty", "fill it in")
    numbers = tuple(map(columns.number, texts, targets)) if targets else ()
    place = folder.relative(os.path.normpath(os.fsencode(path)))
    if place == b".":
        raise UnusableError(f"{shown(path)} leads out: it is no file", "name one")
    leaves = place.startswith((b"/", b"../")) or place == b".."
    if leaves and not folder.allow_outside:
        raise UnusableError(
            f"{shown(path)} leads out of the folder of the table", OUTSIDE
        )
    text = values.get(SPLIT, "train").strip()
    split = SPLITS.get(text.lower())
    if split is None:
        known = ", ".join(dict.fromkeys(SPLITS.values()))
        raise UnusableError(f"there is no split {shown(text)!r}", f"give {known}")
    return CsvRow(line, place, texts, numbers, split)


def _separator(text: str, needed: Sequence[str]) -> str:
    """Return what separates the columns, by the header; Excel's may be `;`."""
    header = text.partition("\n")[0]
    for separator in SEPARATORS:
        found = {column.strip().strip('"') for column in header.split(separator)}
        if found.issuperset(needed):
            return separator
    return SEPARATORS[0]


def _check_header(config: DataConfig, header: list[str], needed: Sequence[str]) -> None:
    missing = [column for column in needed if column not in header]
    twice = sorted({c for c in (*needed, SPLIT) if header.count(c) > 1})
    if missing or twice:
        wrong = f"no column {missing[0]!r}" if missing else f"{twice[0]!r} twice"
        meant = nearest(missing[0], header) if missing else ""
        raise UserError(
            f"{config.source}, line 1: expected a header with {', '.join(needed)} and, "
            f"if wanted, split; it has {wrong}: {shown(', '.join(header)[:200])!r}"
            f"{meant}"
        )


def _check_paths_differ(rows: list[CsvRow], problems: Problems) -> None:
    lines: dict[bytes, int] = {}
    for row in rows:
        first = lines.setdefault(row.path, row.line)
        if first != row.line:
            problems.add(
                f"{shown(row.path)} is in line {first} already",
                "list each image once",
                f"line {row.line}",
            )


def _in_order(labels: set[str]) -> list[str]:
    """Sort names by their letters, and numbers by size."""
    if all(map(_NUMBER.fullmatch, labels)):
        # A longer number is a larger one; Python converts only so many digits.
        return sorted(labels, key=lambda text: (len(text), text))
    return sorted(labels)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
