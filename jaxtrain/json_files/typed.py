"""Conversion of JSON values to expected types."""

import dataclasses
from typing import Any, TypeVar

import msgspec

from jaxtrain.errors import UserError, hint

T = TypeVar("T")

# Conversion errors of at least this number of characters are shortened in messages.
MAX_LETTERS = 600
_ROWS = list, tuple
_UNCHANGED = frozenset((bool, int, str, type(None)))


def convert(value: Any, kind: type[T], where: str) -> T:
    """Convert a JSON value to a type.

    Unknown fields of a dataclass are errors; unknown keys of a TypedDict are preserved.
    For floats, integers are accepted and preserved.

    Args:
      value: Parsed JSON value.
      kind: Type to convert to.
      where: Source of the value, such as a file path, for messages.

    Raises:
      UserError: The value has another type. The message has the field (as
        `$.a.b[...]`), the expected type and the actual type.
    """
    try:
        converted = msgspec.convert(value, kind)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        # The message may quote a long string, and ends with the path of the field.
        message = str(error)
        if len(message) >= MAX_LETTERS:
            message = f"{message[:300]}...{message[-300:]}"
        raise UserError(f"{where}: {message}") from None
    return _as_written(value, converted, where, "$")


def fitting(value: Any, kind: type[T]) -> T | None:
    """Convert the value to a type, or return None if it does not fit the type."""
    try:
        return convert(value, kind, "")
    except UserError:
        return None


def _as_written(value: Any, converted: Any, where: str, place: str) -> Any:
    """Restore integers that msgspec converted to floats, and keys that it dropped.

    Raises:
      UserError: A value for a dataclass has an unknown field.
    """
    if isinstance(converted, _ROWS):
        # Fast path: there may be a million class names.
        if _UNCHANGED.issuperset(map(type, converted)):
            return converted
        place += "[...]"
        pairs = zip(value, converted, strict=True)
        return type(converted)(_as_written(x, y, where, place) for x, y in pairs)
    if isinstance(converted, dict):
        return {
            key: _as_written(x, converted[key], where, f"{place}.{key}")
            if key in converted
            else x
            for key, x in value.items()
        }
    if dataclasses.is_dataclass(converted):
        names = [f.name for f in dataclasses.fields(converted)]
        for name, x in value.items():
            if name not in names:
                raise UserError(
                    f"{where}: {name[:60]!r} is unknown to this version of jaxtrain "
                    f"and its plug-ins; {hint(name, names)} - at `{place}`"
                )
            x = _as_written(x, getattr(converted, name), where, f"{place}.{name}")
            object.__setattr__(converted, name, x)
    # Return integers unconverted: configs are compared with the file and rewritten.
    return value if isinstance(converted, float) else converted
