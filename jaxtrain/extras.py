"""Extras of the package: whether their libraries are here, and how to install them."""

import importlib.util
import os
import shlex
import shutil
import sys
from pathlib import Path

# The folder that is installed, with its pyproject.toml.
PROJECT = Path(__file__).parent.parent


def missing(*libraries: str) -> str | None:
    """Return the first of some libraries that is not installed; None: all are."""
    for name in libraries:
        spec = importlib.util.find_spec(name)
        # A folder of that name, such as one with data, imports as an empty package.
        if spec is None or spec.origin is None:
            return name
    return None


def install(extra: str) -> str:
    """Return the command that installs an extra for the Python that runs this.

    It is short in an activated environment and in the project's folder.
    """
    python = Path(sys.executable or "python")
    found = shutil.which("pip")
    pip = "pip"
    if found is None or Path(found).parent != python.parent:
        pip = f"{shlex.quote(_shown(python))} -m pip"
    project = "." if _is_here(PROJECT) else _shown(PROJECT)
    return f"{pip} install -e {shlex.quote(f'{project}[{extra}]')}"


def _is_here(folder: Path) -> bool:
    try:
        return os.path.samefile(folder, ".")
    except OSError:
        return False


def _shown(path: Path) -> str:
    try:
        return str(path.relative_to(os.getcwd()))
    except (OSError, ValueError):
        return str(path)
