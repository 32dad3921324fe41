"""JSON of unknown origin: values that Python's reader would change are refused.

It takes NaN and Infinity, makes infinity of 1e999, keeps the last of two fields of one
name, and reads values so deep that code which walks through them exceeds Python's
recursion limit. msgspec's reader keeps the last field, too, and refuses the lone
surrogates of file names that are not UTF-8.
"""

import math
from collections import Counter
from json import JSONDecoder
from typing import Any

# Deepest nesting of lists and objects: files of a run have 8.
MAX_DEPTH = 64
# NumPy has no larger integers.
MAX_INTEGER = 2**63 - 1
_NESTED = frozenset((dict, list))


def parse(content: str | bytes, *, nan: bool = False) -> Any:
    """Return the value of a JSON text in UTF-8.

    Args:
      nan: Whether NaN, Infinity, -Infinity and integers of any size are numbers.

    Raises:
      ValueError: It is not JSON, is nested deeper than `MAX_DEPTH`, or has a number out
        of range or a field twice.
    """
    try:
        text = content.decode() if isinstance(content, bytes) else content
        value = (_LENIENT if nan else _STRICT).decode(text)
        _check_depth(value)
    except RecursionError:
        raise ValueError(f"it is nested more than {MAX_DEPTH} deep") from None
    return value


def _check_depth(value: Any) -> None:
    """Raise RecursionError at a depth that does not depend on the caller's."""
    depth, level = 0, [value] if type(value) in _NESTED else []
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise RecursionError
        items = [x.values() if isinstance(x, dict) else x for x in level]
        # Without a loop in Python over numbers alone, which most values are.
        items = [inner for inner in items if not _NESTED.isdisjoint(map(type, inner))]
        level = [x for inner in items for x in inner if type(x) in _NESTED]


def _finite(text: str) -> float:
    if math.isfinite(value := float(text)):
        return value
    raise ValueError(f"{text[:20]} is no finite number")


def _integer(text: str) -> int:
    # A sign and 19 digits.
    if len(text) <= 20 and abs(value := int(text)) <= MAX_INTEGER:
        return value
    raise ValueError(f"{text[:20]} is an integer beyond {MAX_INTEGER}")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        [(name, _)] = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"it has the field {name[:60]!r} twice")
    return values


# Made once: `json.loads` makes one for each text.
_LENIENT = JSONDecoder(parse_float=_finite, object_pairs_hook=_object)
_STRICT = JSONDecoder(
    parse_float=_finite,
    parse_int=_integer,
    parse_constant=_finite,
    object_pairs_hook=_object,
)
