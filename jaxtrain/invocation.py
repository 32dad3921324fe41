"""Command line that starts the program, for commands in messages."""

import os
import shlex
import shutil

NAME = "jaxtrain"

# Script and interpreter; None if a user's script or notebook imports the package.
_program: tuple[str, str] | None = None


def note(script: str, interpreter: str) -> None:
    """Record how the program was started.

    Args:
      script: Path of the started script (`sys.argv[0]`).
      interpreter: Name or path of the Python executable (`sys.orig_argv[0]`).
    """
    global _program
    _program = script, interpreter


def program() -> str:
    """Return `jaxtrain`, `python main.py` or `python -m jaxtrain`, shell-quoted."""
    if _program is None:
        return NAME
    script, interpreter = _program
    name, python = os.path.basename(script), _on_path(interpreter)
    if name == "__main__.py":
        return f"{python} -m {NAME}"
    if name.endswith(".py"):
        return f"{python} {shlex.quote(script)}"
    return _on_path(script)


def command(*words: object) -> str:
    """Return a command line to copy: the program and its arguments, shell-quoted."""
    return " ".join([program(), *(shlex.quote(str(word)) for word in words)])


def _on_path(path: str) -> str:
    """Return the name of a program if it is on PATH, else its path, shell-quoted."""
    name = os.path.basename(path)
    found = shutil.which(name)
    same = found is not None and os.path.normpath(found) == os.path.normpath(path)
    return name if same else shlex.quote(path)
