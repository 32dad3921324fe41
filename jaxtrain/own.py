"""A user's own parts: `path/to/file.py:name` or `package.module:name` in a config.

A package or module at the top, `package:name`, is one if Python can find it, and if no
kind of source has its name, such as `csv` of `csv:FILE`.

To load a part is to run code. A folder of a run or of a model may come from anybody,
and names parts, too: so only those are loaded that were allowed in this process. The
command line allows what the user names (the recipe and the options), `--trust` what a
loaded folder names (see `weights/trust.py`).
"""

import contextlib
import hashlib
import importlib
import inspect
import re
import sys
import traceback
from collections.abc import Iterable, Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

from jaxtrain.errors import UntrustedError, UserError
from jaxtrain.plugin import resolve

_REFERENCE = re.compile(r"(?P<place>.*\.py|\w+(\.\w+)*):(?P<name>[A-Za-z_]\w*)")
FORMS = "path/to/file.py:name or package.module:name"

# A part: the absolute path of its file, or its module, and its name there.
Key = tuple[str, str]
# The parts that may be loaded -> None, or why one may not although it was asked for.
_decided: dict[Key, str | None] = {}


def is_own(name: str) -> bool:
    """Whether a name says where a part lies, rather than which row of a table."""
    match = _REFERENCE.fullmatch(name)
    if match is None or "." in match["place"]:
        return match is not None
    kinds = (form.partition(":")[0] for form in resolve("jaxtrain.data:SOURCES"))
    return match["place"] not in kinds and _is_top_level(match["place"])


def allow(names: Iterable[str]) -> None:
    """Let the parts among some names be loaded in this process."""
    _decided.update({_key(name): None for name in names if is_own(name)})


def is_allowed(name: str) -> bool:
    """Whether a part may be loaded in this process."""
    return _decided.get(_key(name), "") is None


def refuse(name: str, reason: str) -> None:
    """Let loading a part fail for a reason, unless it is allowed already."""
    _decided.setdefault(_key(name), reason)


@contextlib.contextmanager
def allowing_nothing() -> Iterator[None]:
    """Forget what was allowed before, until the end: a command begins with nothing."""
    before = dict(_decided)
    _decided.clear()
    try:
        yield
    finally:
        _decided.clear()
        _decided.update(before)


def decided() -> dict[Key, str | None]:
    """Return the decisions so far, for `hand_over` in a process of ours."""
    return dict(_decided)


def hand_over(decisions: dict[Key, str | None]) -> None:
    """Allow and refuse what another process of ours does."""
    _decided.update(decisions)


def _key(name: str) -> Key:
    match = _REFERENCE.fullmatch(name)
    assert match is not None
    place = match["place"]
    return str(Path(place).resolve()) if place.endswith(".py") else place, match["name"]


def load(field: str, reference: str) -> Any:
    """Import what a field of the config refers to.

    The folder of a file is put at the end of the places that modules come from, so that
    data workers find it, too.

    Args:
      reference: `path/to/file.py:name`, from the current folder, or
        `package.module:name`.

    Raises:
      UntrustedError: it was not allowed.
      UserError: there is no such file, module or name, or importing it failed.
    """
    match = _REFERENCE.fullmatch(reference)
    assert match is not None
    place, name = match["place"], match["name"]
    shown = f"{field} = {reference!r}"
    check_allowed(field, reference)
    try:
        module = _import_file(place) if place.endswith(".py") else _import(place)
    except UserError as error:
        raise UserError(f"{shown}: {error}") from None
    except (Exception, SystemExit) as error:
        what = f"{type(error).__name__}: {error}"
        raise UserError(f"{shown}: importing {place} failed: {what}") from error
    if not hasattr(module, name):
        known = ", ".join(n for n in vars(module) if not n.startswith("_")) or "nothing"
        raise UserError(f"{shown}: {place} has no {name!r}; it has {known}")
    return getattr(module, name)


@contextlib.contextmanager
def no_exit() -> Iterator[None]:
    """Make a mistake of the user out of `sys.exit` in a part of their own.

    Raises:
      UserError: it was called; the message names the line.
    """
    try:
        yield
    except SystemExit as end:
        frame = traceback.extract_tb(end.__traceback__)[-1]
        raise UserError(
            f"{frame.filename}:{frame.lineno}: SystemExit: {end}: a part of your own "
            "must return, or raise an error that says what is wrong"
        ) from None


def told(error: BaseException) -> str:
    """Return an error of a user's own code in one line, with its file and line."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = Path(__file__).parent
    theirs = [f for f in frames if ours not in Path(f.filename).parents] or frames
    theirs = [f for f in theirs if "site-packages" not in f.filename] or theirs
    text = str(error).partition("\n")[0] or "no message"
    return f"{type(error).__name__}: {text} ({theirs[-1].filename}:{theirs[-1].lineno})"


def reference(part: Any) -> str:
    """Return the reference of an object of a recipe: configs are written as JSON.

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

    Returns:
      By the file or the module, as the names have it; those without a file are missing.
    """
    found = {}
    for name in filter(is_own, names):
        place, file = place_of(name), find_file(name)
        if file is not None:
            found[place] = hashlib.sha256(file.read_bytes()).hexdigest()
    return found


def place_of(name: str) -> str:
    """Return the file or the module of a part, as its name has it."""
    return name.rpartition(":")[0]


def find_file(name: str) -> Path | None:
    """Return the file of a part without running code; None if none can be found."""
    place = place_of(name)
    if place.endswith(".py"):
        path = Path(place).resolve()
        return path if path.is_file() else None
    # `importlib.util.find_spec` would import the packages that a module lies in.
    spec, words = None, place.split(".")
    for end in range(1, len(words) + 1):
        folders = None if spec is None else spec.submodule_search_locations
        if spec is not None and folders is None:
            return None
        spec = _find_spec(".".join(words[:end]), folders)
        if spec is None:
            return None
    origin = Path(spec.origin) if spec and spec.has_location and spec.origin else None
    return origin if origin is not None and origin.is_file() else None


def _is_top_level(module: str) -> bool:
    """Whether Python can find a module at the top, which is not imported."""
    return module in sys.modules or _find_spec(module, None) is not None


def _find_spec(module: str, folders: Any) -> ModuleSpec | None:
    finders = (finder.find_spec for finder in sys.meta_path)
    return next(filter(None, (find(module, folders) for find in finders)), None)


def check_allowed(field: str, reference: str) -> None:
    """Raise UntrustedError if a field names a part that was not allowed."""
    if not is_own(reference):
        return
    key, shown = _key(reference), f"{field} = {reference!r}"
    if key not in _decided:
        raise UntrustedError(
            f"{shown} is code, and named by a saved run or model alone, not by this "
            "command: give --trust (in Python trust=True) to show its file, compare "
            "its digest with the recorded one, and run it; see docs/security.md"
        )
    reason = _decided[key]
    if reason is not None:
        raise UntrustedError(f"{shown}: {reason}")


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
    found = _origin(path.stem)
    if found is None or Path(found).resolve() != path:
        raise UserError(
            f"another module is called {path.stem!r} ({found or 'built in'}): rename "
            "the file"
        )
    return importlib.import_module(path.stem)


def _origin(module: str) -> str | None:
    """Return the file of a module at the top, as it was or would be imported."""
    if module in sys.modules:
        return getattr(sys.modules[module], "__file__", None)
    spec = _find_spec(module, None)
    return spec.origin if spec is not None and spec.has_location else None


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
