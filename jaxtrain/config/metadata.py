"""Metadata of fields: their meanings, and all else beside type and default."""

import dataclasses
import functools
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, get_type_hints


def field(
    default: Any = dataclasses.MISSING,
    *,
    default_factory: Any = dataclasses.MISSING,
    **known: Any,
) -> Any:
    """Return a field of a dataclass with what else is known of it.

    Args:
      default: Default value, a constant.
      default_factory: Function that makes it, where it is no constant.
      **known: Metadata of the field, or of all fields of the section that it holds:
        `help`: meaning with unit, as the help shows it.
        `may_change_on_resume`: whether a run may go on with another value; "same data"
        if it does with the same data. `shared`: "never" if each process of a run may
        set its own; "unless same data" if it says where the data lie. `common`: whether
        the short help shows it; `rare`: whether that leaves an option of a command out.
        `other_names`: names that other tools have for it. `one_of`: group of fields of
        which one may be set. `part_option`: whether it is an option of the part that
        the field `name` names; "keyword" if it is passed by its own name. `rows`: table
        whose rows declare the options that it takes. `code_of_model`: whether it may
        name code of a trained model. `unusual`: reason why most tasks refuse it. Other
        keys are described where they are read.
    """
    return dataclasses.field(
        default=default, default_factory=default_factory, metadata=known
    )


@functools.cache
def with_metadata(section: type, key: str) -> Mapping[str, Any]:
    """Return the fields with a metadata key: path -> value.

    Args:
      section: Section class; nested sections are included.
      key: Key of the metadata; the fields of a nested section inherit it from the
        field that holds the section.
    """
    found, hints = dict[str, Any](), get_type_hints(section)
    for field in dataclasses.fields(section):
        hint = hints[field.name]
        inside: Iterable[str] = ()
        if isinstance(hint, type) and dataclasses.is_dataclass(hint):
            within = with_metadata(hint, key)
            found |= {f"{field.name}.{path}": value for path, value in within.items()}
            inside = (f"{field.name}.{path}" for path in leaves(hint))
        if key in field.metadata:
            found |= dict.fromkeys(inside or [field.name], field.metadata[key])
    return MappingProxyType(found)


def leaves(section: type) -> list[str]:
    """Return the paths of the fields of a section that are no sections."""
    found = []
    for name, hint in get_type_hints(section).items():
        if isinstance(hint, type) and dataclasses.is_dataclass(hint):
            found += [f"{name}.{path}" for path in leaves(hint)]
        else:
            found.append(name)
    return found
