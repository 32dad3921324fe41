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
    Folder,
    ImageFileStore,
    Names,
    digest,
    read_file,
    shown,
)
from jaxtrain.data.include import Include
from jaxtrain.data.stores import Opened
from jaxtrain.errors import UserError

NEEDED, OPTIONAL = ("path", "label"), ("split",)
_NUMBER = re.compile(r"0|[1-9][0-9]*")


class Row(NamedTuple):
    """A row: the place of the image below the folder of the table, its label, split."""

    line: int
    path: bytes
    label: str
    split: str


def open_csv(name: str, config: DataConfig) -> Opened:
    """Open images that a table lists: the columns path, label and, if wanted, split.

    Raises:
      UserError: the table cannot be read, or lists what cannot be used.
    """
    source = config.source
    if not name:
        raise UserError(f"data.source = {source!r}: expected csv:FILE")
    path = os.path.expanduser(name)
    folder = Folder(os.path.dirname(path) or ".", source)
    include = Include(config)
    rows = [
        row for row in _rows(source, _text(source, path)) if include.keeps(row.path)
    ]
    include.check_all_met()
    if not rows:
        raise UserError(f"{source} lists no image{include.told}")
    _check_paths_differ(source, rows)
    class_names = _in_order({row.label for row in rows})
    numbers = {label: i for i, label in enumerate(class_names)}
    labels = np.array([numbers[row.label] for row in rows], np.int32)
    split_of = np.array([row.split for row in rows])
    splits = {
        split: [np.flatnonzero(split_of == split)]
        for split in dict.fromkeys(SPLITS.values())
        if split in split_of
    }
    class_names = [shown(label) for label in class_names]
    classes.check(source, splits, labels, class_names)
    sizes = [folder.size(row.path, where=f", line {row.line}") for row in rows]
    known = (b"%b\0%b\0%b" % (r.path, _bytes(r.label), _bytes(r.split)) for r in rows)
    facts = classes.facts(class_names, digest(known, sizes))
    names = Names.join([row.path for row in rows])
    return ImageFileStore(folder.root, names, labels, facts), splits


def _text(source: str, path: str) -> str:
    data = read_file(os.fsencode(path))
    if isinstance(data, OSError):
        raise UserError(f"{source}: {data.strerror}, seen from {os.getcwd()}")
    # A name of a file may be of any bytes.
    return data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")


def _rows(source: str, text: str) -> Iterator[Row]:
    """Yield the rows of a table that has a header.

    Raises:
      UserError: a row cannot be read, which the message names by its line.
    """
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = [column.strip() for column in next(reader, [])]
        _check_header(source, header)
        for fields in filter(None, reader):
            if len(fields) != len(header):
                raise ValueError(f"{len(fields)} fields, but {len(header)} columns")
            values = dict(zip(header, fields, strict=True))
            yield _row(reader.line_num, values)
    except (csv.Error, ValueError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{source}, line {reader.line_num}: {error}") from None


def _check_header(source: str, header: list[str]) -> None:
    missing = [column for column in NEEDED if column not in header]
    twice = sorted({c for c in (*NEEDED, *OPTIONAL) if header.count(c) > 1})
    if missing or twice:
        wrong = f"no column {missing[0]!r}" if missing else f"{twice[0]!r} twice"
        raise UserError(
            f"{source}, line 1: expected a header with path, label and, if wanted, "
            f"split; it has {wrong}: {shown(', '.join(header)[:200])!r}"
        )


def _row(line: int, values: dict[str, str]) -> Row:
    path, label = values["path"], values["label"].strip()
    if not path or not label:
        raise ValueError(f"the {'label' if path else 'path'} is empty")
    place = os.path.normpath(os.fsencode(path))
    if place.startswith((b"/", b"../")) or place in (b"..", b"."):
        raise ValueError(
            f"{shown(path)} leads out of the folder of the table: give a place in it"
        )
    text = values.get("split", "train").strip()
    split = SPLITS.get(text.lower())
    if split is None:
        raise ValueError(f"there is no split {shown(text)!r}: expected {_known()}")
    return Row(line, place, label, split)


def _known() -> str:
    return ", ".join(dict.fromkeys(SPLITS.values()))


def _check_paths_differ(source: str, rows: list[Row]) -> None:
    lines: dict[bytes, int] = {}
    for row in rows:
        first = lines.setdefault(row.path, row.line)
        if first != row.line:
            raise UserError(
                f"{source}, line {row.line}: {shown(row.path)} is in line {first} "
                "already: list each image once"
            )


def _in_order(labels: set[str]) -> list[str]:
    """Sort names by their letters, and numbers by size."""
    if all(map(_NUMBER.fullmatch, labels)):
        # A longer number is a larger one; Python converts only so many digits.
        return sorted(labels, key=lambda text: (len(text), text))
    return sorted(labels)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
