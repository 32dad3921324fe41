"""Values read from JSON, checked against the types that the code expects."""

import dataclasses
from typing import Any, TypeVar

import msgspec

from jaxtrain.errors import UserError, hint

T = TypeVar("T")

# Longest part of a message that is about a value.
MAX_LETTERS = 600
_ROWS = list, tuple
_UNCHANGED = frozenset((bool, int, str, type(None)))


def convert(value: Any, kind: type[T], where: str) -> T:
    """Return a value of JSON as a value of a type.

    Dataclasses take no other fields; TypedDicts keep further keys. An integer stays one
    where a float is expected.

    Args:
      where: Path of the file or name of the place that it was read from.

    Raises:
      UserError: It is something else: the message names the field as `$.a.b[3]`, what
        was expected and what was found.
    """
    try:
        found = msgspec.convert(value, kind)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        told = str(error)  # It may hold a text of any length, and ends with the path.
        told = told if len(told) < MAX_LETTERS else f"{told[:300]}...{told[-300:]}"
        raise UserError(f"{where}: {told}") from None
    return _as_written(value, found, where, "$")


def fitting(value: Any, kind: type[T]) -> T | None:
    """Return a value as `convert` does, or None if it is something else."""
    try:
        return convert(value, kind, "")
    except UserError:
        return None


def _as_written(value: Any, found: Any, where: str, place: str) -> Any:
    """Return `found` with what msgspec drops: integers of floats, further keys.

    Raises:
      UserError: A dataclass does not have a field: msgspec leaves it out, too.
    """
    if isinstance(found, _ROWS):
        # There may be a million names of classes.
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
    # A config is compared with what it was, and written anew.
    return value if isinstance(found, float) else found
