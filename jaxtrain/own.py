"""Custom code named in a config: `path/to/file.py:name` or `package.module:name`.

With a top-level module, `module:name` is custom code only if Python finds the module,
and no data source has the same name as the module, such as `csv` in `csv:FILE`.

Loading the code runs it. Directories of runs and models, which may be of unknown
origin, can also refer to custom code. Therefore, only code that was allowed in this
process is loaded. The command line allows the code that recipe and options refer to;
`--trust` allows the code that a loaded directory refers to (`weights/trust.py`).
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

_REFERENCE = re.compile(r"(?P<module>.*\.py|\w+(\.\w+)*):(?P<name>[A-Za-z_]\w*)")
FORMS = "path/to/file.py:name or package.module:name"

# Key of custom code: (absolute path of the file or name of the module, name of the
# object).
Key = tuple[str, str]
# Key of custom code -> None if the code is allowed, else the reason for refusing it.
_decided: dict[Key, str | None] = {}


def is_own(name: str) -> bool:
    """Whether a name refers to custom code, instead of a built-in or plug-in part."""
    match = _REFERENCE.fullmatch(name)
    if match is None or "." in match["module"]:
        return match is not None
    kinds = (form.partition(":")[0] for form in resolve("jaxtrain.data:SOURCES"))
    return match["module"] not in kinds and _is_top_level(match["module"])


def allow(names: Iterable[str]) -> None:
    """Allow custom code in this process; other names are ignored."""
    _decided.update({_key(name): None for name in names if is_own(name)})


def is_allowed(name: str) -> bool:
    """Whether the custom code `name` is allowed in this process."""
    return _decided.get(_key(name), "") is None


def refuse(name: str, reason: str) -> None:
    """Refuse custom code with a reason, unless it is allowed already."""
    _decided.setdefault(_key(name), reason)


@contextlib.contextmanager
def allowing_nothing() -> Iterator[None]:
    """Allow no custom code within the context; then restore the previous decisions."""
    before = dict(_decided)
    _decided.clear()
    try:
        yield
    finally:
        _decided.clear()
        _decided.update(before)


def decided() -> dict[Key, str | None]:
    """Return key of custom code -> None if allowed, else the reason for refusing it."""
    return dict(_decided)


def hand_over(decisions: dict[Key, str | None]) -> None:
    """Adopt the decisions of a parent process in this process.

    Args:
      decisions: Result of `decided` in the parent process.
    """
    _decided.update(decisions)


def _key(name: str) -> Key:
    match = _REFERENCE.fullmatch(name)
    assert match is not None
    module = match["module"]
    if module.endswith(".py"):
        module = str(Path(module).resolve())
    return module, match["name"]


def load(field: str, reference: str) -> Any:
    """Import the custom code of a config field.

    The directory of a file is appended to `sys.path`, so that data workers can import
    the file, too.

    Args:
      field: Path of the config field, for messages.
      reference: `path/to/file.py:name`, with a path relative to the current directory,
        or `package.module:name`.

    Raises:
      UntrustedError: The code is not allowed.
      UserError: The file, module or name is missing, or the import fails.
    """
    match = _REFERENCE.fullmatch(reference)
    assert match is not None
    source, name = match["module"], match["name"]
    shown = f"{field} = {reference!r}"
    check_allowed(field, reference)
    try:
        module = _import_file(source) if source.endswith(".py") else _import(source)
    except UserError as error:
        raise UserError(f"{shown}: {error}") from None
    except (Exception, SystemExit) as error:
        what = f"{type(error).__name__}: {error}"
        raise UserError(f"{shown}: importing {source} failed: {what}") from error
    if not hasattr(module, name):
        known = ", ".join(n for n in vars(module) if not n.startswith("_")) or "nothing"
        raise UserError(f"{shown}: {source} has no {name!r}; expected {known}")
    return getattr(module, name)


@contextlib.contextmanager
def no_exit() -> Iterator[None]:
    """Convert `sys.exit` in custom code to a UserError within the context.

    Raises:
      UserError: `sys.exit` was called; the message has the file and line.
    """
    try:
        yield
    except SystemExit as end:
        frame = traceback.extract_tb(end.__traceback__)[-1]
        raise UserError(
            f"{frame.filename}:{frame.lineno}: SystemExit: {end}: custom code must "
            "return, or raise an error that describes the problem"
        ) from None


def describe_error(error: BaseException) -> str:
    """Format an error of custom code in a single line that ends with its location."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = Path(__file__).parent
    theirs = [f for f in frames if ours not in Path(f.filename).parents] or frames
    theirs = [f for f in theirs if "site-packages" not in f.filename] or theirs
    text = str(error).partition("\n")[0] or "no message"
    return f"{type(error).__name__}: {text} ({theirs[-1].filename}:{theirs[-1].lineno})"


def reference(part: Any) -> str:
    """Return the reference `path/to/file.py:name` of a class or function.

    Raises:
      UserError: The object is not defined at the top level of a file.
    """
    name = getattr(part, "__qualname__", None)
    file = _file(part)
    if name is None or file is None or not name.isidentifier() or name == "<lambda>":
        raise UserError(
            f"{part!r} cannot be saved in config.json: use a class or function at the "
            f"top level of a module, or a reference, {FORMS}"
        )
    path = Path(file)
    if path.is_relative_to(Path.cwd()):
        path = path.relative_to(Path.cwd())
    return f"{path}:{name}"


def digests(names: Iterable[str]) -> dict[str, str]:
    """SHA-256 digests of the files with the custom code in `names`.

    Returns:
      Hex digest by path or module, as given in `names`; modules without a file are
      omitted.
    """
    found = {}
    for name in filter(is_own, names):
        module, file = module_of(name), find_file(name)
        if file is not None:
            found[module] = hashlib.sha256(file.read_bytes()).hexdigest()
    return found


def module_of(name: str) -> str:
    """Return the path or module in a reference to custom code."""
    return name.rpartition(":")[0]


def find_file(name: str) -> Path | None:
    """Find the file of custom code without running it; None if there is no file."""
    module = module_of(name)
    if module.endswith(".py"):
        path = Path(module).resolve()
        return path if path.is_file() else None
    # `importlib.util.find_spec` would import the parent packages.
    spec, words = None, module.split(".")
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
    """Whether a top-level module exists, without importing it."""
    return module in sys.modules or _find_spec(module, None) is not None


def _find_spec(module: str, folders: Any) -> ModuleSpec | None:
    finders = (finder.find_spec for finder in sys.meta_path)
    return next(filter(None, (find(module, folders) for find in finders)), None)


def check_allowed(field: str, reference: str) -> None:
    """Raise UntrustedError if a field refers to custom code that is not allowed."""
    if not is_own(reference):
        return
    key, shown = _key(reference), f"{field} = {reference!r}"
    if key not in _decided:
        raise UntrustedError(
            f"{shown} is custom code named only by a saved run or model, not by this "
            "command: give --trust (in Python trust=True) to show the file, compare "
            "the file with the recorded digest, and run the code (docs/security.md)"
        )
    reason = _decided[key]
    if reason is not None:
        raise UntrustedError(f"{shown}: {reason}")


def _import(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module}.".startswith(f"{error.name}."):
            raise UserError(f"no module {error.name}") from None
        raise


def _import_file(file: str) -> Any:
    path = Path(file).resolve()
    if not path.is_file():
        raise UserError(f"no file {file} in {Path.cwd()}")
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    importlib.invalidate_caches()
    found = _origin(path.stem)
    if found is None or Path(found).resolve() != path:
        raise UserError(
            f"another module is already named {path.stem!r} ({found or 'built in'}): "
            "rename the file"
        )
    return importlib.import_module(path.stem)


def _origin(module: str) -> str | None:
    """File of a top-level module, whether or not it has been imported."""
    if module in sys.modules:
        return getattr(sys.modules[module], "__file__", None)
    spec = _find_spec(module, None)
    return spec.origin if spec is not None and spec.has_location else None


def _file(part: Any) -> str | None:
    """File that defines a class or function.

    `inspect.getfile` fails for classes in a recipe, as recipes are executed, not
    imported. The code objects of their methods contain the path of the file.
    """
    members = [part, *vars(part).values()] if inspect.isclass(part) else [part]
    for member in map(inspect.unwrap, members):
        code = getattr(member, "__code__", None)
        ours = getattr(member, "__module__", None) == part.__module__
        if ours and code is not None and Path(code.co_filename).is_file():
            return str(Path(code.co_filename).resolve())
    return None
