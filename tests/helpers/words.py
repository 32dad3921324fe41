"""Paths in a command that is one line, for `shlex.split`."""

import shlex
from pathlib import Path


def quoted(path: str | Path) -> str:
    """Quote a path, which may hold spaces."""
    return shlex.quote(str(path))
