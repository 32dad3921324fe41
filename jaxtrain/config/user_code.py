"""Execution of user files, such as recipes; errors name the line in the file."""

import contextlib
import re
import runpy
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from jaxtrain import config as config_lib
from jaxtrain.config.part import owners_of, part_tables
from jaxtrain.errors import UserError, first_of, hint
from jaxtrain.registry import NUM_OWNERS


def load_function(option: str, path: Path, name: str) -> Callable[..., Any]:
    """Execute a user file; return its function `name`, to be called within `running`.

    Args:
      option: Option that names the file, for messages.
      path: Path of the Python file.
      name: Name of the function.

    Raises:
      UserError: The file is missing, raises, or has no such function.
    """
    if not path.is_file():
        known = sorted(str(p) for p in path.parent.glob("*.py"))
        raise UserError(f"{option} {path}: no such file; {hint(str(path), known)}")
    with running(path):
        function = runpy.run_path(str(path)).get(name)
    if not callable(function):
        raise UserError(f"{path} does not define {name}(): add the function")
    return function


@contextlib.contextmanager
def running(path: Path) -> Iterator[None]:
    """Context manager to run code of a user file; the code may import adjacent modules.

    Raises:
      UserError: The code raises; the message names the line.
    """
    try:
        with _importing_siblings(path):
            yield
    except UserError as error:
        raise UserError(f"{_location(error, path)}: {error}") from None
    except (Exception, SystemExit) as error:
        message = f"{_location(error, path)}: {type(error).__name__}: {error}"
        raise UserError(message + _suggest_field(error)) from error


@contextlib.contextmanager
def _importing_siblings(path: Path) -> Iterator[None]:
    """Allow a user file to import modules from its directory, as a script can.

    The imported modules are removed from `sys.modules` afterwards, as a file in another
    directory may import a different module of the same name.
    """
    folder, known, paths = path.resolve().parent, set(sys.modules), sys.path[:]
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path[:] = paths
        tops = {name.partition(".")[0] for name in set(sys.modules) - known} - known
        siblings = {top for top in tops if _is_in(sys.modules.get(top), folder)}
        for name in list(sys.modules):
            if name.partition(".")[0] in siblings:
                del sys.modules[name]


def _is_in(module: ModuleType | None, folder: Path) -> bool:
    """Whether a module or package is directly in `folder`."""
    paths = list(getattr(module, "__path__", [])) or [getattr(module, "__file__", "")]
    return any(Path(path).parent == folder for path in paths if path)


def _location(error: BaseException, path: Path) -> str:
    """Return FILE:LINE of the innermost user code in the traceback of an error."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [(frame.filename, frame.lineno) for frame in frames]
    if isinstance(error, SyntaxError):
        lines.append((error.filename or "", error.lineno))
    folder, package = path.resolve().parent, Path(__file__).resolve().parent
    for name, line in reversed(lines):
        file = Path(name).resolve()
        if file == path.resolve():
            return f"{path}:{line}"
        own = file.is_relative_to(folder) and not file.is_relative_to(package)
        if own and file.is_file() and "site-packages" not in file.parts:
            return f"{path.parent / file.relative_to(folder)}:{line}, for {path}"
    return str(path)


def _suggest_field(error: BaseException) -> str:
    """Return a hint if the error is an unknown field in a config file, else ""."""
    match = re.search(r"unexpected keyword argument '(\w+)'", str(error))
    if not match:
        return ""
    for table in part_tables(config_lib.Config).values():
        if owners := owners_of(table, match[1]):
            return f"; {match[1]} is an option of {first_of(owners, NUM_OWNERS)}"
    known = sorted({name for path in config_lib.paths() for name in path.split(".")})
    return "; " + hint(match[1], known)
