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

    Dataclasses reject unknown fields, while TypedDicts preserve unknown keys. Integers
    are valid floats and remain integers.

    Args:
      value: Parsed JSON value.
      kind: Type to convert to.
      where: Path of the file, or another name of the source, for messages.

    Raises:
      UserError: The value has another type; the message names the field as `$.a.b[3]`,
        the expected type and the actual type.
    """
    try:
        converted = msgspec.convert(value, kind)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        # The message may quote a long text, and ends with the path.
        message = str(error)
        if len(message) >= MAX_LETTERS:
            message = f"{message[:300]}...{message[-300:]}"
        raise UserError(f"{where}: {message}") from None
    return _as_written(value, converted, where, "$")


def fitting(value: Any, kind: type[T]) -> T | None:
    """Return the converted value, or None if it has another type."""
    try:
        return convert(value, kind, "")
    except UserError:
        return None


def _as_written(value: Any, converted: Any, where: str, place: str) -> Any:
    """Undo lossy conversions of msgspec: integers to floats, dropped unknown keys.

    Raises:
      UserError: A field is unknown to its dataclass.
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
    # Keep integers: a config is compared with the original, and rewritten.
    return value if isinstance(converted, float) else converted
