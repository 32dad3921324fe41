"""Conversion of JSON values to expected types."""

import dataclasses
from typing import Any, TypeVar

import msgspec

from jaxtrain.errors import UserError, hint

T = TypeVar("T")

# Maximum length of a conversion error in a message.
MAX_LETTERS = 600
_ROWS = list, tuple
_UNCHANGED = frozenset((bool, int, str, type(None)))


def convert(value: Any, kind: type[T], where: str) -> T:
    """Convert a JSON value to a type.

    Dataclasses reject unknown fields; TypedDicts keep further keys. Integers are kept
    where floats are expected.

    Args:
      value: Parsed JSON value.
      kind: Type to convert to.
      where: Path of the file, or name of the origin.

    Raises:
      UserError: The value has another type; the message names the field as `$.a.b[3]`,
        the expected type and the actual one.
    """
    try:
        found = msgspec.convert(value, kind)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        told = str(error)  # It may hold a text of any length, and ends with the path.
        told = told if len(told) < MAX_LETTERS else f"{told[:300]}...{told[-300:]}"
        raise UserError(f"{where}: {told}") from None
    return _as_written(value, found, where, "$")


def fitting(value: Any, kind: type[T]) -> T | None:
    """Return the converted value, or None if it has another type."""
    try:
        return convert(value, kind, "")
    except UserError:
        return None


def _as_written(value: Any, found: Any, where: str, place: str) -> Any:
    """Restore in `found` what msgspec drops: integers for floats, further keys.

    Raises:
      UserError: A dataclass lacks a field, which msgspec also drops.
    """
    if isinstance(found, _ROWS):
        # Fast path: there may be a million class names.
        if _UNCHANGED.issuperset(map(type, found)):
            return found
        place += "[...]"
        pairs = zip(value, found, strict=True)
        return type(found)(_as_written(x, y, where, place) for x, y in pairs)
    if isinstance(found, dict):
        return {
            key: _as_written(x, found[key], where, f"{place}.{key}")
            if key in found
            else x
            for key, x in value.items()
        }
    if dataclasses.is_dataclass(found):
        names = [f.name for f in dataclasses.fields(found)]
        for name, x in value.items():
            if name not in names:
                told = f"{name[:60]!r} is unknown to this version of jaxtrain and its "
                told += f"plug-ins; {hint(name, names)} - at `{place}`"
                raise UserError(f"{where}: {told}")
            x = _as_written(x, getattr(found, name), where, f"{place}.{name}")
            object.__setattr__(found, name, x)
    # A config is compared with the original, and rewritten.
    return value if isinstance(found, float) else found
