"""The rows of a table of images: paths, targets as texts or numbers, splits."""

import csv
import io
import os
from collections.abc import Iterator
from typing import NamedTuple

from jaxtrain.config import DataConfig
from jaxtrain.data import columns
from jaxtrain.data.classes import SPLITS
from jaxtrain.data.csv_header import Header, read_header
from jaxtrain.data.image_files import OUTSIDE, Folder, shown
from jaxtrain.data.problems import Problems, UnusableError
from jaxtrain.data.target_images import TARGET_IMAGES
from jaxtrain.data.text import UserText, nfc


class CsvRow(NamedTuple):
    """A row of the table.

    Attributes:
      line: Number of its line.
      path: Place of the image below the folder of the table.
      texts: What the columns of the targets hold.
      values: The numbers there; () if they are labels.
      split: Name of its split.
      target_images: Kind of the targets if they are images; else None.
      target_file: Place of its target below the folder of the table; empty if it is no
        image.
    """

    line: int
    path: bytes
    texts: tuple[str, ...]
    values: tuple[float, ...]
    split: str
    target_images: str | None = None
    target_file: bytes = b""


def read_rows(
    folder: Folder, text: UserText, config: DataConfig, problems: Problems
) -> Iterator[CsvRow]:
    """Yield the rows of a table that can be used; what is wrong goes to `problems`."""
    header = read_header(config, text.content)
    problems.remarks += header.remarks()
    table = io.StringIO(header.table, newline="")
    reader = csv.reader(table, strict=True, delimiter=header.separator)
    try:
        next(reader)
        for fields in reader:
            line = header.line - 1 + reader.line_num
            if not any(map(str.strip, fields)):
                continue  # Spreadsheets end with rows of separators alone.
            where = f"line {line}"
            if len(fields) != len(header.names):
                told = f"{len(fields)} fields, but {len(header.names)} columns"
                problems.add(told, "give each row a field a column", where)
                continue
            values = dict(zip(header.names, fields, strict=True))
            row = problems.attempt(
                _row, folder, config, text, header, line, values, where=where
            )
            if row is not None:
                yield row
    except csv.Error as error:
        where = f"line {header.line - 1 + reader.line_num}"
        problems.add(str(error), "the table ends there: mend it", where)


def _row(
    folder: Folder,
    config: DataConfig,
    text: UserText,
    header: Header,
    line: int,
    values: dict[str, str],
) -> CsvRow:
    path = values[header.path]
    texts = tuple(nfc(values[name].strip()) for name in header.targets)
    kind = header.target_images
    if not path or (kind and not texts[0]):
        empty = TARGET_IMAGES[kind].column if kind and path else header.path
        raise UnusableError(f"the {empty} is empty", "fill it in")
    numbers = ()
    if config.targets:
        comma = header.has_decimal_comma
        pairs = zip(texts, header.targets, strict=True)
        numbers = tuple(columns.number(*pair, comma=comma) for pair in pairs)
    target = _place(folder, text, values[header.targets[0]]) if kind else b""
    place = _place(folder, text, path)
    named = "train" if header.split is None else values[header.split].strip()
    split = SPLITS.get(named.lower())
    if split is None:
        known = ", ".join(dict.fromkeys(SPLITS.values()))
        raise UnusableError(f"there is no split {shown(named)!r}", f"give {known}")
    return CsvRow(line, place, texts, numbers, split, kind, target)


def _place(folder: Folder, text: UserText, path: str) -> bytes:
    """Return the place of a file below the folder of the table.

    Of several spellings that the path may have on disk it is the first that is there.

    Raises:
      UnusableError: It lies elsewhere, or is none.
    """
    paths = [path, path.replace("\\", "/")] if "\\" in path else [path]
    spelled = [name for one in paths for name in text.spellings(one)]
    places = [folder.relative(os.path.normpath(name)) for name in spelled]
    place = next(filter(folder.has, places[1:] and places), places[0])
    if place == b".":
        raise UnusableError(f"{shown(path)} leads out: it is no file", "name one")
    leaves = place.startswith((b"/", b"../")) or place == b".."
    if leaves and not folder.allow_outside:
        raise UnusableError(
            f"{shown(path)} leads out of the folder of the table", OUTSIDE
        )
    return place
