"""Metadata of config fields: help text, resume behaviour, names in other tools."""

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, get_type_hints


def field(
    default: Any = dataclasses.MISSING,
    *,
    default_factory: Any = dataclasses.MISSING,
    init: bool = True,
    **known: Any,
) -> Any:
    """Return a dataclass field with metadata.

    Args:
      default: Default value, a constant.
      default_factory: Function that returns the default, if it is not a constant.
      init: Whether the constructor takes the field.
      **known: Metadata of the field. If the field is a section, its fields inherit the
        metadata. Further keys are described where they are read.

        - `help`: meaning with unit, as the help shows it
        - `may_change_on_resume`: whether a run may be resumed with another value; "same
          data" allows this only if the data is the same
        - `shared`: "never" if the processes of a run may have different values; "unless
          same data" allows this only if their data is the same
        - `common`: whether the short help shows the field of a config
        - `rare`: whether the short help omits the field of a command
        - `other_names`: names of the field in other tools
        - `one_of`: name of a group of fields; only one field of a group may be set
        - `table`: `PartTable` of a field that holds a part, such as the optimizer
        - `code_of_model`: whether the field may name code of a trained model
        - `unusual`: reason why most tasks reject the field
    """
    return dataclasses.field(
        default=default, default_factory=default_factory, init=init, metadata=known
    )


def with_metadata(section: Any, key: str, *, inherit: bool = True) -> Mapping[str, Any]:
    """Return the value of a metadata key for each field that has the key, by path.

    Args:
      section: A section; or its class, to use the default parts. Nested sections are
        included.
      key: Key of the metadata.
      inherit: Whether the fields of a nested section inherit the metadata of the field
        that holds the section. If False, that field is listed instead.
    """
    if isinstance(section, type):
        return _of_class(section, key, inherit)
    return _find(section, key, inherit)


def leaves(section: Any) -> list[str]:
    """Return the paths of all leaf fields, including fields of nested sections.

    Args:
      section: A section; or its class, to use the default parts.
    """
    found = []
    for field, inner in nested(section):
        below = [field.name] if inner is None else leaves(inner)
        found += below if inner is None else [f"{field.name}.{path}" for path in below]
    return found


def nested(section: Any) -> Iterator[tuple["dataclasses.Field[Any]", Any]]:
    """Yield each field with its nested section, or with None if it is a leaf."""
    hints = get_type_hints(section) if isinstance(section, type) else {}
    for field in dataclasses.fields(section):
        inner = hints.get(field.name) or getattr(section, field.name)
        if isinstance(section, type) and "table" in field.metadata:
            inner = field.default_factory
        is_section = dataclasses.is_dataclass(inner)
        is_section &= isinstance(section, type) == isinstance(inner, type)
        yield field, inner if is_section else None


def _find(section: Any, key: str, inherit: bool) -> Mapping[str, Any]:
    found = dict[str, Any]()
    for field, inner in nested(section):
        paths = [field.name]
        if inner is not None:
            within = with_metadata(inner, key, inherit=inherit)
            found |= {f"{field.name}.{path}": value for path, value in within.items()}
            if inherit:
                paths = [f"{field.name}.{path}" for path in leaves(inner)]
        if key in field.metadata:
            found |= dict.fromkeys(paths, field.metadata[key])
    return MappingProxyType(found)


_of_class = functools.cache(_find)
