"""The rows of a table of images: paths, targets as texts or numbers, splits."""

import csv
import io
import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from jaxtrain.config import DataConfig
from jaxtrain.data import columns
from jaxtrain.data.classes import SPLITS
from jaxtrain.data.image_files import OUTSIDE, Folder, encoded_name, shown
from jaxtrain.data.problems import Problems, UnusableError
from jaxtrain.errors import UserError, nearest

PATH, LABEL, SPLIT, MASK = "path", "label", "split", "mask"
# Of columns; the first whose header has those that are needed.
SEPARATORS = (",", ";", "\t")


class CsvRow(NamedTuple):
    """A row of the table.

    Attributes:
      line: Number of its line.
      path: Place of the image below the folder of the table.
      texts: What the columns of the targets hold.
      values: The numbers there; () if they are labels.
      split: Name of its split.
      mask: Place of its mask below the folder of the table; empty if there is none.
    """

    line: int
    path: bytes
    texts: tuple[str, ...]
    values: tuple[float, ...]
    split: str
    mask: bytes = b""


def read_rows(
    folder: Folder, text: str, config: DataConfig, problems: Problems
) -> Iterator[CsvRow]:
    """Yield the rows of a table that can be used; what is wrong goes to `problems`."""
    needed = _needed(config, text)
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
            row = problems.attempt(
                _row, folder, config, line, values, needed, where=where
            )
            if row is not None:
                yield row
    except csv.Error as error:
        where = f"line {reader.line_num}"
        problems.add(str(error), "the table ends there: mend it", where)


def _needed(config: DataConfig, text: str) -> tuple[str, ...]:
    """Return the columns that a table must have: the path, and those of the targets."""
    if config.targets:
        return PATH, *config.targets
    header = text.partition("\n")[0]
    for separator in SEPARATORS if config.label_separator is None else ():
        found = {column.strip().strip('"') for column in header.split(separator)}
        if MASK in found and LABEL not in found:
            return PATH, MASK
    return PATH, LABEL


def _row(
    folder: Folder,
    config: DataConfig,
    line: int,
    values: dict[str, str],
    needed: tuple[str, ...],
) -> CsvRow:
    path, targets = values[PATH], config.targets
    texts = tuple(values[name].strip() for name in needed[1:])
    one = not targets and config.label_separator is None
    if not path or (one and not texts[0]):
        empty = needed[1] if path else PATH
        raise UnusableError(f"the {empty} is empty", "fill it in")
    numbers = tuple(map(columns.number, texts, targets)) if targets else ()
    mask = _place(folder, texts[0]) if needed[1] == MASK and not targets else b""
    place = _place(folder, path)
    text = values.get(SPLIT, "train").strip()
    split = SPLITS.get(text.lower())
    if split is None:
        known = ", ".join(dict.fromkeys(SPLITS.values()))
        raise UnusableError(f"there is no split {shown(text)!r}", f"give {known}")
    return CsvRow(line, place, texts, numbers, split, mask)


def _place(folder: Folder, path: str) -> bytes:
    """Return where a file lies below the folder of the table.

    Raises:
      UnusableError: it lies elsewhere, or is none.
    """
    place = folder.relative(os.path.normpath(encoded_name(path)))
    if place == b".":
        raise UnusableError(f"{shown(path)} leads out: it is no file", "name one")
    leaves = place.startswith((b"/", b"../")) or place == b".."
    if leaves and not folder.allow_outside:
        raise UnusableError(
            f"{shown(path)} leads out of the folder of the table", OUTSIDE
        )
    return place


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
