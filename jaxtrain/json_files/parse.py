"""JSON of unknown origin: what Python would read as something else is refused.

Python's own reader takes NaN and Infinity, makes infinity of 1e999, keeps the last of
two fields of one name, and reads values so deep that code which walks through them
exceeds Python's recursion limit.
"""

import math
from collections.abc import Sequence
from json import loads
from typing import Any, NoReturn

# Deepest nesting of lists and objects: files of a run have 8.
MAX_DEPTH = 64
_NESTED = frozenset((dict, list))
# Python reads integers of 4300 digits; the largest float has 309.
_MAX_DIGITS = 400


def parse(content: str | bytes, *, nan: bool = False) -> Any:
    """Return the value of a JSON text in UTF-8.

    Args:
      content: JSON text to read.
      nan: Whether NaN, Infinity and -Infinity are numbers.

    Raises:
      ValueError: It is not JSON, is nested deeper than `MAX_DEPTH`, or has a number
        that is not finite or a field twice.
    """
    text = content.decode() if isinstance(content, bytes) else content
    try:
        value = loads(
            text,
            parse_constant=None if nan else _refuse,
            parse_float=_finite,
            parse_int=_integer,
            object_pairs_hook=_object,
        )
    except RecursionError:
        raise _too_deep() from None
    _check_depth(value)
    return value


def _check_depth(value: Any) -> None:
    """Check the depth level by level, without recursion."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(MAX_DEPTH):
        level = [inner for container in level for inner in _nested(container)]
        if not level:
            return
    raise _too_deep()


def _nested(container: dict[str, Any] | list[Any]) -> Sequence[Any]:
    """Return the lists and objects that a list or an object holds."""
    items = container.values() if isinstance(container, dict) else container
    # Without a loop in Python over numbers alone, which most values are.
    if _NESTED.isdisjoint(map(type, items)):
        return ()
    return [item for item in items if type(item) in _NESTED]


def _too_deep() -> ValueError:
    return ValueError(f"it is nested more than {MAX_DEPTH} deep")


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text[:20]} is too large")
    return value


def _integer(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise ValueError(f"a number has {len(text)} digits")
    return int(text)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"it has the field {twice[:60]!r} twice")
    return values
