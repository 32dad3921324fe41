"""The program as the user called it, for the commands that messages show."""

import os
import shlex
import shutil

NAME = "jaxtrain"

# Script and interpreter; None where a script or a notebook of the user's calls us.
_called: tuple[str, str] | None = None


def note(script: str, interpreter: str) -> None:
    """Remember how the program was started.

    Args:
      script: Path of the started script (`sys.argv[0]`).
      interpreter: Python as it was called (`sys.orig_argv[0]`).
    """
    global _called
    _called = script, interpreter


def program() -> str:
    """`jaxtrain`, `python main.py` or `python -m jaxtrain`, quoted for a shell."""
    if _called is None:
        return NAME
    script, interpreter = _called
    name, python = os.path.basename(script), _on_path(interpreter)
    if name == "__main__.py":
        return f"{python} -m {NAME}"
    if name.endswith(".py"):
        return f"{python} {shlex.quote(script)}"
    return _on_path(script)


def command(*words: object) -> str:
    """A command line to copy: the program and its words, each quoted for a shell."""
    return " ".join([program(), *(shlex.quote(str(word)) for word in words)])


def _on_path(path: str) -> str:
    """The name of a program that the shell finds by it; else its path, quoted."""
    name = os.path.basename(path)
    found = shutil.which(name)
    same = found is not None and os.path.normpath(found) == os.path.normpath(path)
    return name if same else shlex.quote(path)
