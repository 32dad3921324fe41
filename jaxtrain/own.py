"""A user's own parts: `path/to/file.py:name` or `package.module:name` in a config."""

import hashlib
import importlib
import inspect
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from jaxtrain.errors import UserError

_REFERENCE = re.compile(r"(?P<place>.*\.py|\w+(\.\w+)+):(?P<name>[A-Za-z_]\w*)")
FORMS = "path/to/file.py:name or package.module:name"


def is_own(name: str) -> bool:
    """Tell whether a name says where a part lies, rather than which row of a table."""
    return _REFERENCE.fullmatch(name) is not None


def load(field: str, reference: str) -> Any:
    """Import what a field of the config refers to.

    The folder of a file is put at the end of the places that modules come from, so that
    data workers find it, too.

    Args:
      field: its path, for messages.
      reference: `path/to/file.py:name`, from the current folder, or
        `package.module:name`.

    Raises:
      UserError: there is no such file, module or name, or importing it failed.
    """
    match = _REFERENCE.fullmatch(reference)
    assert match is not None
    place, name = match["place"], match["name"]
    shown = f"{field} = {reference!r}"
    try:
        module = _import_file(place) if place.endswith(".py") else _import(place)
    except UserError as error:
        raise UserError(f"{shown}: {error}") from None
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        raise UserError(f"{shown}: importing {place} failed: {what}") from error
    if not hasattr(module, name):
        known = ", ".join(n for n in vars(module) if not n.startswith("_")) or "nothing"
        raise UserError(f"{shown}: {place} has no {name!r}; it has {known}")
    return getattr(module, name)


def reference(part: Any) -> str:
    """Return where an object lies that a recipe holds: configs are written as JSON.

    Raises:
      UserError: it has no name at the top of a file.
    """
    name = getattr(part, "__qualname__", None)
    file = _file(part)
    if name is None or file is None or not name.isidentifier() or name == "<lambda>":
        raise UserError(
            f"{part!r}: a config is written as JSON, and this cannot be: give a class "
            f"or a function from the top of a file, or its place, {FORMS}"
        )
    path = Path(file)
    if path.is_relative_to(Path.cwd()):
        path = path.relative_to(Path.cwd())
    return f"{path}:{name}"


def digests(names: Iterable[str]) -> dict[str, str]:
    """Return the SHA-256 of the file of each own part among some names.

    Parts of installed packages, which have versions of their own, are left out.
    """
    found = {}
    for name in names:
        match = _REFERENCE.fullmatch(name)
        if match and match["place"].endswith(".py"):
            data = Path(match["place"]).read_bytes()
            found[match["place"]] = hashlib.sha256(data).hexdigest()
    return found


def _import(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module}.".startswith(f"{error.name}."):
            raise UserError(f"there is no module {error.name}") from None
        raise


def _import_file(place: str) -> Any:
    path = Path(place).resolve()
    if not path.is_file():
        raise UserError(f"there is no file {place}, seen from {Path.cwd()}")
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    importlib.invalidate_caches()
    module = importlib.import_module(path.stem)
    found = getattr(module, "__file__", None)
    if found is None or Path(found).resolve() != path:
        raise UserError(
            f"another module is called {path.stem!r} ({found or 'built in'}): rename "
            "the file"
        )
    return module


def _file(part: Any) -> str | None:
    """Return the file that a class or a function was defined in.

    A recipe is run, not imported: its classes are found by the code of a method.
    """
    members = [part, *vars(part).values()] if inspect.isclass(part) else [part]
    for member in map(inspect.unwrap, members):
        code = getattr(member, "__code__", None)
        ours = getattr(member, "__module__", None) == part.__module__
        if ours and code is not None and Path(code.co_filename).is_file():
            return str(Path(code.co_filename).resolve())
    return None
