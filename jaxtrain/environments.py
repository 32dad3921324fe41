"""Python environments for libraries that conflict with jaxtrain's requirements."""

import importlib.util
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from jaxtrain.errors import UserError

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Environment:
    """A separate Python environment for optional libraries.

    Attributes:
      libraries: Alternative modules; the feature needs only one of them.
      folder: Directory of the environment, relative to the working directory or to the
        root of the project.
      variable: Environment variable that overrides `folder`.
      target: Makefile target that creates the environment.
      purpose: Start of the error message: the feature, and the library it needs.
    """

    libraries: tuple[str, ...]
    folder: str
    variable: str
    target: str
    purpose: str

    @property
    def fix(self) -> str:
        return (
            f"create {self.folder} with `make {self.target}`, or set ${self.variable} "
            "to another path"
        )

    def find(self) -> Path:
        """Return the path of the Python executable to use.

        This is the running Python if it has one of the libraries, else the Python of
        the environment.

        Raises:
          UserError: The environment does not exist.
        """
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
