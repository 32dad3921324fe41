"""Environments of Python for libraries that do not go with jaxtrain's own."""

import importlib.util
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from jaxtrain.errors import UserError

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Environment:
    """A Python environment that has some libraries.

    Attributes:
      libraries: Modules, of which one is enough.
      folder: Folder of the environment, in the current one or beside `main.py`.
      variable: Environment variable that names another place of it.
      target: Target of `make` that makes it.
      purpose: What it is needed for, with what, to begin a message with.
    """

    libraries: tuple[str, ...]
    folder: str
    variable: str
    target: str
    purpose: str

    @property
    def fix(self) -> str:
        return (
            f"`make {self.target}` makes {self.folder}; ${self.variable} names another "
            "place of it"
        )

    def find(self) -> Path:
        """Return its Python: this one, if it has the libraries."""
        if any(importlib.util.find_spec(name) for name in self.libraries):
            return Path(sys.executable)
        given = os.environ.get(self.variable)
        places = [Path(given)] if given else [Path(self.folder), ROOT / self.folder]
        for place in places:
            python = place / "bin" / "python"
            if python.exists():
                return python.absolute()
        where = f"${self.variable} = {given}" if given else f"no {self.folder}"
        raise UserError(f"{self.purpose} ({where}): {self.fix}")
