"""Headers of image tables (CSV files): column separator and column roles."""

import contextlib
import csv
import io
import itertools
import re
import shlex
from typing import NamedTuple

from jaxtrain.config import DataConfig
from jaxtrain.data import columns, target_images
from jaxtrain.data.image_files import shown
from jaxtrain.data.problems import Remark, UnusableError
from jaxtrain.data.text import nfc
from jaxtrain.errors import UserError, nearest

# Accepted names of the path column, in order of precedence.
PATHS = (
    *("path", "filepath", "file_path", "image_path"),
    *("filename", "file_name", "file", "image"),
)
LABEL, SPLIT = "label", "split"
# Column separators; the first separator that yields the required columns is used.
SEPARATORS = (",", ";", "\t")
# Optional first line that declares the separator for Excel, such as `sep=;`.
_SEPARATOR_LINE = re.compile(r'"?sep=([^"\r\n])"?(\r\n|\r|\n)', re.IGNORECASE)
# Maximum length of a header, in characters.
MAX_HEADER = 2**16
# Maximum number of rows to inspect for numeric columns.
NUM_LOOKED = 1000
# Maximum number of columns to name in a message.
NUM_NAMED = 20


class Header(NamedTuple):
    """Header of an image table.

    Attributes:
      table: Text of the table, starting at the header.
      line: Line number of the header.
      separator: Column separator, one character.
      names: Names of all columns.
      path: Name of the path column.
      targets: Names of the target columns.
      split: Name of the split column, or None if absent.
      target_images: Key of `TARGET_IMAGES` if the target column holds paths of images,
        such as masks; None for other targets.
    """

    table: str
    line: int
    separator: str
    names: list[str]
    path: str
    targets: tuple[str, ...]
    split: str | None
    target_images: str | None = None

    @property
    def has_decimal_comma(self) -> bool:
        """Whether numbers may have decimal commas."""
        return self.separator != ","

    def remarks(self) -> tuple[Remark, ...]:
        """Return a remark that names the path column, or () if the choice is obvious.

        The choice is obvious if the column is named `path`, and no other column has a
        name in `PATHS`.
        """
        others = [n for n in self.names if n.lower() in PATHS and n != self.path]
        if self.path.lower() == PATHS[0] and not others:
            return ()
        more = f", and not {shown(others[0])}" if others else ""
        return (Remark("files", f"column {shown(self.path)}{more}", serious=False),)


def read_header(config: DataConfig, text: str) -> Header:
    """Parse the header of a table.

    Raises:
      UserError: A required column is missing or appears twice.
    """
    line, separators = 1, SEPARATORS
    if match := _SEPARATOR_LINE.match(text):
        text, line, separators = text[match.end() :], 2, (match[1],)
    headers = [_parsed(config, text, line, separator) for separator in separators]
    complete = [header for header in headers if not _missing(header)]
    header = (complete or sorted(headers, key=lambda h: -len(h.names)))[0]
    _check(config, header)
    return header


def _parsed(config: DataConfig, text: str, line: int, separator: str) -> Header:
    """Parse the header for one separator; names of missing columns are ""."""
    rows = _first_rows(text[:MAX_HEADER], separator, 1)
    names = [nfc(name.strip()) for row in rows for name in row]
    # Names are case-insensitive; among equal names, the first one is used.
    known = {name.lower(): name for name in reversed(names)}
    path = next((known[name] for name in PATHS if name in known), "")
    column, kind = LABEL, None
    if not config.targets and config.label_separator is None and LABEL not in known:
        files = target_images.columns().items()
        column, kind = next((row for row in files if row[0] in known), (LABEL, None))
    targets = (known.get(column, ""),)
    if config.targets:
        targets = tuple(map(nfc, config.targets))
    split = known.get(SPLIT)
    return Header(text, line, separator, names, path, targets, split, kind)


def _first_rows(text: str, separator: str, number: int) -> list[list[str]]:
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    try:
        return list(itertools.islice(reader, number))
    except csv.Error:
        return []  # `csv_rows.read_rows` reports malformed tables.


def _missing(header: Header) -> list[str]:
    targets = [name or LABEL for name in header.targets]
    missing = [name for name in targets if name not in header.names]
    if "" in header.targets:
        missing = [LABEL]
    return missing if header.path else [PATHS[0], *missing]


def _check(config: DataConfig, header: Header) -> None:
    names, missing = header.names, _missing(header)
    wanted = (header.path, *header.targets, header.split)
    twice = sorted({name for name in wanted if name and names.count(name) > 1})
    if not missing and not twice:
        return
    wrong = f"no column {missing[0]!r}" if missing else f"{twice[0]!r} twice"
    needed = [header.path or PATHS[0], *(name or LABEL for name in header.targets)]
    hint = nearest(missing[0], names) if missing else ""
    if missing == [LABEL] and config.label_separator is None:
        hint = _describe_numbers(header) or hint
    raise UserError(
        f"{config.source}, line {header.line}: expected a header with "
        f"{', '.join(needed)} and optionally `split`; the header has {wrong}: "
        f"{shown(', '.join(names)[:200])!r}{hint}"
    )


def _describe_numbers(header: Header) -> str:
    _, *rows = _first_rows(header.table, header.separator, 1 + NUM_LOOKED)
    numeric = []
    for place, name in enumerate(header.names):
        cells = [row[place] for row in rows if place < len(row) and row[place].strip()]
        if name not in ("", header.path, header.split) and cells:
            with contextlib.suppress(UnusableError):
                for cell in cells:
                    columns.number(cell, name, comma=header.has_decimal_comma)
                numeric.append(name)
    if not numeric:
        return ""
    named = " ".join(shlex.quote(shown(name)) for name in numeric[:NUM_NAMED])
    return (
        ". For task = 'multilabel' or 'regression', name the target columns: "
        f"{len(numeric)} columns are numeric, --data.targets {named} (--targets of the "
        "command new)"
    )
