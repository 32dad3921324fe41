"""Rows of image tables: paths, targets and splits."""

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
    """Row of an image table.

    Attributes:
      line: Line number of the row.
      path: Path of the image, relative to the directory of the table.
      texts: Contents of the target columns, as text.
      values: Numeric targets, or () for other targets.
      split: Name of the split.
      target_images: Key of `TARGET_IMAGES`, or None for targets other than images.
      target_file: Path of the target image, relative to the directory of the table, or
        b"" for other targets.
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
    """Yield the valid rows of a table; report invalid rows to `problems`."""
    header = read_header(config, text.content)
    problems.remarks += header.remarks()
    table = io.StringIO(header.table, newline="")
    reader = csv.reader(table, strict=True, delimiter=header.separator)
    try:
        next(reader)
        for fields in reader:
            line = header.line - 1 + reader.line_num
            if not any(map(str.strip, fields)):
                continue  # Spreadsheets append rows that hold only separators.
            where = f"line {line}"
            if len(fields) != len(header.names):
                problem = f"{len(fields)} fields, but {len(header.names)} columns"
                problems.add(problem, "give each row one field per column", where)
                continue
            values = dict(zip(header.names, fields, strict=True))
            row = problems.attempt(
                _row, folder, config, text, header, line, values, where=where
            )
            if row is not None:
                yield row
    except csv.Error as error:
        where = f"line {header.line - 1 + reader.line_num}"
        problems.add(
            str(error), "repair the table, which cannot be read beyond this line", where
        )


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
        raise UnusableError(f"the {empty} is empty", "fill in the cell")
    numbers = ()
    if config.targets:
        comma = header.has_decimal_comma
        pairs = zip(texts, header.targets, strict=True)
        numbers = tuple(columns.number(*pair, comma=comma) for pair in pairs)
    target = _relative_path(folder, text, values[header.targets[0]]) if kind else b""
    place = _relative_path(folder, text, path)
    named = "train" if header.split is None else values[header.split].strip()
    split = SPLITS.get(named.lower())
    if split is None:
        known = ", ".join(dict.fromkeys(SPLITS.values()))
        raise UnusableError(f"the split {shown(named)!r} is unknown", f"give {known}")
    return CsvRow(line, place, texts, numbers, split, kind, target)


def _relative_path(folder: Folder, text: UserText, path: str) -> bytes:
    """Return a file's path relative to the directory of the table.

    Returns the first of the possible spellings (`UserText.spellings`) that exists. If
    the path has backslashes, spellings with slashes are tried, too.

    Raises:
      UnusableError: The path is outside the directory, or is not a file path.
    """
    paths = [path, path.replace("\\", "/")] if "\\" in path else [path]
    spelled = [name for one in paths for name in text.spellings(one)]
    places = [folder.relative(os.path.normpath(name)) for name in spelled]
    place = next(filter(folder.has, places[1:] and places), places[0])
    if place == b".":
        raise UnusableError(f"{shown(path)} is not a file", "give a file path")
    leaves = place.startswith((b"/", b"../")) or place == b".."
    if leaves and not folder.allow_outside:
        raise UnusableError(
            f"{shown(path)} is outside the directory of the table", OUTSIDE
        )
    return place
