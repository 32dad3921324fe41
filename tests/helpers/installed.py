"""Rows of tests whose commands and formats are installed, as plug-ins may not be."""

import importlib.util
import shlex
from collections.abc import Iterable, Sequence
from typing import TypeVar

from jaxtrain.commands import COMMANDS, DEFAULT
from jaxtrain.export.exporter import EXPORTERS

R = TypeVar("R", bound=str | Sequence)
# With plug-ins all rows are kept, so that none is left out for a mistake in it.
HAS_PLUGINS = importlib.util.find_spec("jaxtrain.plugins") is not None


def installed(rows: Iterable[R]) -> list[R]:
    """Return the rows whose command, the row or its first value, can be called.

    A command is a text or a sequence of words.
    """
    return [row for row in rows if HAS_PLUGINS or _is_installed(row)]


def _is_installed(row: str | Sequence) -> bool:
    while not isinstance(row, str) and not isinstance(row[0], str):
        row = row[0]
    words = shlex.split(row) if isinstance(row, str) else [*row]
    if len(words) == 1:
        words = shlex.split(words[0])
    command = DEFAULT if words[0].startswith("-") else words[0]
    format = words[words.index("--format") + 1] if "--format" in words else None
    formats = (None, "safetensors", *EXPORTERS)
    return command in COMMANDS and format in formats
