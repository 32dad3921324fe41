"""Removed fields in saved configs of older versions; see `Section.removed`."""

from collections.abc import Iterator, Mapping
from typing import Any, get_type_hints

from jaxtrain.config.base import Renamed
from jaxtrain.errors import UserError


def without_removed(
    values: Mapping[str, Any], section: Any, where: str, path: str = ""
) -> dict[str, Any]:
    """Drop removed fields from saved values of a section, and rename renamed ones.

    Args:
      values: JSON values by field.
      section: Class of the section.
      where: File with the values, for messages.
      path: Path of the section in its config; "" for an entire config.

    Raises:
      UserError: A removed field has a non-default value.
    """
    removed, hints = section.removed(), get_type_hints(section)
    found = dict[str, Any]()
    for name, value in values.items():
        full = f"{path}.{name}" if path else name
        if name in hints or name not in removed:
            inner = hints.get(name)
            if hasattr(inner, "removed") and isinstance(value, Mapping):
                value = without_removed(value, inner, where, full)
            found.setdefault(name, value)
        elif isinstance(default := removed[name], Renamed):
            if value is not None:
                found[default.name] = value
        elif value != default:
            raise UserError(
                f"{where}: {full} = {value!r}: this version of jaxtrain has removed "
                f"the field and computes as with its default {default!r}: use the "
                "version that wrote it"
            )
    return found


def removed_fields(section: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield path and default of the removed fields of a section and nested sections."""
    before = f"{path}." if path else ""
    for name, default in section.removed().items():
        yield before + name, default
    for name, inner in get_type_hints(section).items():
        if hasattr(inner, "removed"):
            yield from removed_fields(inner, before + name)
