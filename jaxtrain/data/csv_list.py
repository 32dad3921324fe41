"""`csv:FILE`: image files that a table lists, with their labels and splits."""

import csv
import io
import os
import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from jaxtrain.config import DataConfig
from jaxtrain.data import classes
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
from jaxtrain.errors import UserError

NEEDED, OPTIONAL = ("path", "label"), ("split",)
# Of columns; the first whose header has those that are needed.
SEPARATORS = (",", ";", "\t")
_NUMBER = re.compile(r"0|[1-9][0-9]*")


class CsvRow(NamedTuple):
    """A row: the place of the image below the folder of the table, its label, split."""

    line: int
    path: bytes
    label: str
    split: str


def open_csv(name: str, config: DataConfig) -> Opened:
    """Open images that a table lists: the columns path, label and, if wanted, split.

    Raises:
      UserError: the table cannot be read, or lists what cannot be used; one message has
        all of it.
    """
    source = config.source
    path = os.path.expanduser(name)
    folder = Folder(os.path.dirname(path) or ".", config)
    include, problems = Include(config), Problems(source)
    table = _rows(folder, _text(source, path), problems)
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
    classes.refuse_measurements(source, [row.label for row in rows])
    class_names = _in_order({row.label for row in rows})
    numbers = {label: i for i, label in enumerate(class_names)}
    label = np.array([numbers[row.label] for row in rows], np.int32)
    split_of = np.array([row.split for row in rows])
    splits = {
        split: [np.flatnonzero(split_of == split)]
        for split in dict.fromkeys(SPLITS.values())
        if split in split_of
    }
    class_names = [shown(label) for label in class_names]
    known = (b"\0".join((r.path, _bytes(r.label), _bytes(r.split))) for r in rows)
    whole = digest(zip(known, sizes, strict=True))
    facts = classes.facts(source, splits, label, class_names, whole)
    names = FileNames.join([row.path for row in rows])
    return ImageFileStore(folder.root, names, label, facts), splits


def _text(source: str, path: str) -> str:
    data = read_file(os.fsencode(path))
    if isinstance(data, OSError):
        raise UserError(f"{source}: {data.strerror}, seen from {os.getcwd()}")
    # A name of a file may be of any bytes.
    return data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")


def _rows(folder: Folder, text: str, problems: Problems) -> Iterator[CsvRow]:
    """Yield the rows of a table that can be used; what is wrong goes to `problems`."""
    reader = csv.reader(
        io.StringIO(text, newline=""), strict=True, delimiter=_separator(text)
    )
    try:
        header = [column.strip() for column in next(reader, [])]
        _check_header(folder.source, header)
        for fields in filter(None, reader):
            where = f"line {reader.line_num}"
            if len(fields) != len(header):
                told = f"{len(fields)} fields, but {len(header)} columns"
                problems.add(told, "give each row a field a column", where)
                continue
            values = dict(zip(header, fields, strict=True))
            line = reader.line_num
            row = problems.attempt(_row, folder, line, values, where=where)
            if row is not None:
                yield row
    except csv.Error as error:
        where = f"line {reader.line_num}"
        problems.add(str(error), "the table ends there: mend it", where)


def _row(folder: Folder, line: int, values: dict[str, str]) -> CsvRow:
    path, label = values["path"], values["label"].strip()
    if not path or not label:
        empty = "label" if path else "path"
        raise UnusableError(f"the {empty} is empty", "fill it in")
    place = folder.relative(os.path.normpath(os.fsencode(path)))
    if place == b".":
        raise UnusableError(f"{shown(path)} leads out: it is no file", "name one")
    leaves = place.startswith((b"/", b"../")) or place == b".."
    if leaves and not folder.allow_outside:
        raise UnusableError(
            f"{shown(path)} leads out of the folder of the table", OUTSIDE
        )
    text = values.get("split", "train").strip()
    split = SPLITS.get(text.lower())
    if split is None:
        known = ", ".join(dict.fromkeys(SPLITS.values()))
        raise UnusableError(f"there is no split {shown(text)!r}", f"give {known}")
    return CsvRow(line, place, label, split)


def _separator(text: str) -> str:
    """Return what separates the columns, by the header; Excel's may be `;`."""
    header = text.partition("\n")[0]
    for separator in SEPARATORS:
        columns = {column.strip().strip('"') for column in header.split(separator)}
        if columns.issuperset(NEEDED):
            return separator
    return SEPARATORS[0]


def _check_header(source: str, header: list[str]) -> None:
    missing = [column for column in NEEDED if column not in header]
    twice = sorted({c for c in (*NEEDED, *OPTIONAL) if header.count(c) > 1})
    if missing or twice:
        wrong = f"no column {missing[0]!r}" if missing else f"{twice[0]!r} twice"
        raise UserError(
            f"{source}, line 1: expected a header with path, label and, if wanted, "
            f"split; it has {wrong}: {shown(', '.join(header)[:200])!r}"
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
