"""Config fields by dotted path; conversion to JSON, and comparison of configs."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

from jaxtrain import own
from jaxtrain.config.base import is_of_type
from jaxtrain.config.metadata import leaves, with_metadata
from jaxtrain.config.part import Part, PartTable, part_class
from jaxtrain.config.root import Config
from jaxtrain.errors import UserError
from jaxtrain.json_files import typed
from jaxtrain.json_files.read import RESTORE, parse_object, read_object, with_digest
from jaxtrain.json_files.run_id import FIELD as RUN_ID, RunId

# Option types that are accepted if the class that declares the options is missing.
SCALAR = bool | int | float | str
T = TypeVar("T")


def get(config: Any, path: str) -> Any:
    """Return the value at a dotted path, such as `optimizer.learning_rate`."""
    return attrgetter(path)(config)


def replace(config: T, path: str, value: Any) -> T:
    """Return a copy of `config` with the value at a dotted path replaced."""
    name, _, rest = path.partition(".")
    if rest:
        value = replace(getattr(config, name), rest, value)
    return dataclasses.replace(config, **{name: value})  # type: ignore[type-var]


def paths(section: Any = Config) -> list[str]:
    """List the dotted paths of all leaf fields.

    Args:
      section: A config or section; or its class, to use the default parts.
    """
    return leaves(section)


def values_of(section: Any) -> dict[str, Any]:
    """Return the value of each leaf field by dotted path."""
    return {path: get(section, path) for path in leaves(section)}


def shared_values(config: Config, *, same_data: bool) -> dict[str, Any]:
    """Return values that must be equal in all processes of a run, by dotted path.

    Args:
      config: Config of the run.
      same_data: Whether all processes have the same data, perhaps at different paths.
    """
    own = ["never", "unless same data"] if same_data else ["never"]
    shared = with_metadata(Config, "shared")
    return {p: x for p, x in values_of(config).items() if shared.get(p) not in own}


def to_json(config: Config, run: RunId | None = None) -> str:
    """Return a config as JSON text with a digest, as `from_json` expects it.

    Args:
      run: Run whose ID is stored with the config, if any.
    """
    values = dataclasses.asdict(config)
    values = values if run is None else run.stamp(values)
    return json.dumps(with_digest(values), indent=2) + "\n"


def from_json(text: str, where: str = "config") -> Config:
    """Parse the output of `to_json`.

    Args:
      text: JSON text with its digest.
      where: Source of the text, for messages.

    Raises:
      UserError: The text is damaged, is not JSON, or is not a config of this version.
    """
    return _convert(parse_object(text, where), where)


def read_config(path: Path) -> Config | None:
    """Read a config file that `to_json` wrote; None if the file does not exist."""
    values = read_object(path)
    return None if values is None else _convert(values, str(path), f": {RESTORE}")


def _convert(values: dict[str, Any], where: str, advice: str = "") -> Config:
    values.pop(RUN_ID, None)
    try:
        return _read_section(values, Config, where)
    except UserError as error:
        raise UserError(f"{error}{advice}") from None


def own_references(section: Any, prefix: str = "") -> list[tuple[str, str]]:
    """Return (path, name) for each field that names custom code.

    Args:
      section: A config or a section of a config.
      prefix: Prefix of the returned paths, such as `data.`.
    """
    values = [(prefix + path, value) for path, value in values_of(section).items()]
    listed = [(p, v if isinstance(v, tuple) else (v,)) for p, v in values]
    names = [(path, name) for path, some in listed for name in some]
    return [(p, n) for p, n in names if isinstance(n, str) and own.is_own(n)]


def allow_own(config: Config) -> None:
    """Allow this process to load the custom code that a config names."""
    own.allow(name for _, name in own_references(config))


def code_of_model() -> tuple[str, ...]:
    """Return the paths of the fields that may name custom code of a trained model."""
    return tuple(with_metadata(Config, "code_of_model"))


def check_own(config: Config, *prefixes: str) -> None:
    """Check that this process may load the custom code that a config names.

    Args:
      config: Config that names the code.
      *prefixes: Paths of the fields or sections to check; all by default.
    """
    for path, name in own_references(config):
        if not prefixes or _within(path, prefixes):
            own.check_allowed(path, name)


def own_parts(config: Config) -> dict[str, str]:
    """Return the digests of a config's custom code, by file or module name."""
    return own.digests(name for _, name in own_references(config))


def differences(old: Config, new: Config, *, same_data: bool = False) -> list[str]:
    """List the changes that prevent resuming a run, as `path: old -> new`.

    Args:
      old: Config of the saved run.
      new: Config of the resumed run.
      same_data: Whether the data is the same, perhaps at different paths.
    """
    before, after = values_of(old), values_of(new)
    return [
        f"{path}: {before.get(path)!r} -> {after.get(path)!r}"
        for path in changed_paths(old, new, same_data=same_data)
    ]


def changed_paths(old: Config, new: Config, *, same_data: bool = False) -> list[str]:
    """List the paths of the fields in `differences`."""
    may_change = with_metadata(Config, "may_change_on_resume")
    allowed = (True, "same data") if same_data else (True,)
    before, after = values_of(old), values_of(new)
    return [
        path
        for path in dict.fromkeys((*after, *before))
        if (path in before) != (path in after) or before[path] != after[path]
        if may_change.get(path) not in allowed
    ]


def _within(path: str, prefixes: Sequence[str]) -> bool:
    return any(path == p or path.startswith(p + ".") for p in prefixes)


def _read_section(values: Mapping[str, Any], kind: type[T], where: str) -> T:
    """Create a section, including its parts, from a JSON object."""
    tables = {
        field.name: field.metadata["table"]
        for field in dataclasses.fields(kind)  # type: ignore[arg-type]
        if "table" in field.metadata and field.name in values
    }
    parts: dict[str, Any] = {
        name: read_part(values[name], table, f"{where}: {name}")
        for name, table in tables.items()
    }
    others = {name: value for name, value in values.items() if name not in tables}
    section: Any = typed.convert(others, kind, where)
    return dataclasses.replace(section, **parts)


def read_part(values: Any, table: PartTable, where: str) -> Any:
    """Create a part from a JSON object.

    An unknown name, such as the name of a part of a missing plug-in, results in a part
    with untyped options. `check_names` rejects the name later.

    Args:
      values: Parsed JSON object; other values are rejected.
      table: Table of the part.
      where: File and path of the value, for messages.

    Raises:
      UserError: The value has no name, or the part has no such options.
    """
    name = values.get("name") if isinstance(values, Mapping) else None
    if not isinstance(name, str):
        raise UserError(
            f"{where}: expected an object with a field `name`, not {values!r:.60}"
        )
    kind: type[Part] = part_class(table, name)
    known = dict(values)
    if not kind.__dataclass_fields__["name"].init:
        del known["name"]
    elif not own.is_own(name) and name not in table.resolve():
        # The class that declares the options is not installed, so types are unknown.
        options = {n: x for n, x in values.items() if n not in kind.shared_fields}
        scalars = {n: x for n, x in options.items() if is_of_type(x, SCALAR)}
        known = {n: x for n, x in values.items() if n in kind.shared_fields}
        known["options"] = values.get("options", scalars)
    return _read_section(known, kind, where)
