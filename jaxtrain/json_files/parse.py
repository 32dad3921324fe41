"""Strict parsing of untrusted JSON.

Python's JSON decoder accepts NaN and Infinity, converts 1e999 to infinity, accepts
duplicate fields (the last wins), and returns values that are nested too deep for
recursive functions. msgspec's decoder also accepts duplicate fields, and rejects lone
surrogates, with which Python represents file names that are not UTF-8.
"""

import math
from collections import Counter
from json import JSONDecoder
from typing import Any

# Maximum nesting depth of lists and objects. In the files of a run it is at most 8.
MAX_DEPTH = 64
# Largest int64.
MAX_INTEGER = 2**63 - 1
_NESTED = frozenset((dict, list))


def parse(content: str | bytes, *, nan: bool = False) -> Any:
    """Parse JSON text strictly.

    Args:
      content: JSON text as a string, or as UTF-8 bytes.
      nan: Whether to allow NaN, Infinity, -Infinity and integers of any size.

    Raises:
      ValueError: The text is not valid JSON, is nested deeper than `MAX_DEPTH`, or has
        a number out of range or a duplicate field.
    """
    try:
        text = content.decode() if isinstance(content, bytes) else content
        value = (_LENIENT if nan else _STRICT).decode(text)
        _check_depth(value)
    except RecursionError:
        raise ValueError(
            f"the JSON is nested more than {MAX_DEPTH} levels deep"
        ) from None
    return value


def _check_depth(value: Any) -> None:
    """Raise RecursionError if values are nested deeper than `MAX_DEPTH`."""
    depth, level = 0, [value] if type(value) in _NESTED else []
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise RecursionError
        items = [x.values() if isinstance(x, dict) else x for x in level]
        # `map` loops in C, which is fast for long lists of numbers.
        items = [inner for inner in items if not _NESTED.isdisjoint(map(type, inner))]
        level = [x for inner in items for x in inner if type(x) in _NESTED]


def _finite(text: str) -> float:
    if math.isfinite(value := float(text)):
        return value
    raise ValueError(f"{text[:20]} is not a finite number")


def _integer(text: str) -> int:
    # An int64 has at most a sign and 19 digits; longer integers are slow to convert.
    if len(text) <= 20 and abs(value := int(text)) <= MAX_INTEGER:
        return value
    raise ValueError(f"the integer {text[:20]} is beyond the limit of {MAX_INTEGER}")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        [(name, _)] = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"the field {name[:60]!r} occurs twice")
    return values


# Decoders are built once here; `json.loads` would build one in each call.
_LENIENT = JSONDecoder(parse_float=_finite, object_pairs_hook=_object)
_STRICT = JSONDecoder(
    parse_float=_finite,
    parse_int=_integer,
    parse_constant=_finite,
    object_pairs_hook=_object,
)
