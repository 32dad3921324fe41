"""Optional dependencies: checks for missing ones, and install commands."""

import importlib.util
import os
import shlex
import shutil
import sys
from pathlib import Path

# Directory of pyproject.toml.
PROJECT = Path(__file__).parent.parent


def missing(*libraries: str) -> str | None:
    """Return the first missing library, or None if all are installed."""
    for name in libraries:
        spec = importlib.util.find_spec(name)
        # A data directory with the library's name is importable as a namespace package.
        if spec is None or spec.origin is None:
            return name
    return None


def install(extra: str) -> str:
    """Return the shell command that installs an extra into the running Python.

    The command is shortened where possible: `pip` replaces `python -m pip` if `pip` is
    next to the running Python, and the project path is `.` in the project's directory.
    """
    python = Path(sys.executable or "python")
    pip_path = shutil.which("pip")
    pip = "pip"
    if pip_path is None or Path(pip_path).parent != python.parent:
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
