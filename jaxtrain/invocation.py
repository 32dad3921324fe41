"""Command line that starts jaxtrain, for messages that suggest commands."""

import os
import shlex
import shutil

NAME = "jaxtrain"

# Script and interpreter that `note` has recorded; None if jaxtrain is used as a
# library.
_program: tuple[str, str] | None = None


def note(script: str, interpreter: str) -> None:
    """Record the script and interpreter that started jaxtrain.

    Args:
      script: Path of the started script (`sys.argv[0]`).
      interpreter: Name or path of the Python executable (`sys.orig_argv[0]`).
    """
    global _program
    _program = script, interpreter


def program() -> str:
    """Return the shell command that starts jaxtrain, such as `python main.py`."""
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
    """Return a command line of jaxtrain with arguments, shell-quoted for copying."""
    return " ".join([program(), *(shlex.quote(str(word)) for word in words)])


def _on_path(path: str) -> str:
    """Return the program's name if PATH resolves it to `path`, else `path`."""
    name = os.path.basename(path)
    found = shutil.which(name)
    same = found is not None and os.path.normpath(found) == os.path.normpath(path)
    return name if same else shlex.quote(path)
