"""Metadata of config fields: help text, resume behaviour, names in other tools."""

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
    """Return a dataclass field with metadata.

    Args:
      default: Default value, a constant.
      default_factory: Function that returns the default, if it is not a constant.
      **known: Metadata of the field, or of all fields of the section that it holds:
        `help`: meaning with unit, as the help shows it.
        `may_change_on_resume`: whether a resumed run may use another value; "same data"
        if it may as long as the data are the same. `shared`: "never" if processes of a
        run may have different values; "unless same data" if it locates the data.
        `common`: whether the short help shows it; `rare`: whether the short help omits
        an option of a command. `other_names`: names of the field in other tools.
        `one_of`: group of fields of which only one may be set. `part_option`: whether
        it is an option of the model or optimizer that the field `name` selects;
        "keyword" if it is passed as a keyword argument of the same name. `rows`: table
        whose entries declare the options in this field. `code_of_model`: whether it may
        name code of a trained model. `unusual`: reason why most tasks reject it. Other
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
    """Return the paths of all leaf fields of a section, including nested sections."""
    found = []
    for name, hint in get_type_hints(section).items():
        if isinstance(hint, type) and dataclasses.is_dataclass(hint):
            found += [f"{name}.{path}" for path in leaves(hint)]
        else:
            found.append(name)
    return found
