"""Values read from JSON, checked against the types that the code expects."""

import dataclasses
import functools
import json
import sys
from collections.abc import Mapping, Sequence
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from jaxtrain.errors import UserError, hint

T = TypeVar("T")

# Letters of a value that a message shows.
MAX_LETTERS = 60
# NumPy has no larger ones.
MAX_INTEGER = 2**63 - 1
_WORDS = {
    bool: "true or false",
    dict: "an object",
    float: "a finite number",
    int: "a whole number",
    list: "a list",
    NoneType: "null",
    str: "a text",
    tuple: "a list",
}


class _Mismatch(Exception):
    """A field is not what was expected."""

    def __init__(self, field: str, problem: str):
        super().__init__(f"{field}: {problem}" if field else problem)


def convert(value: Any, kind: type[T], where: str) -> T:
    """Return a value of JSON as a value of a type.

    Types are those of JSON, tuples (of lists), `Literal`, unions, dataclasses, whose
    fields may have no other names, and TypedDicts, which may have further keys. An
    integer is a number; true and false are not.

    Args:
      value: Value that `json.loads` returned.
      kind: Type of the result.
      where: Where the value was read, for messages.

    Raises:
      UserError: It is something else: the message names the field, what was expected
        and what was found.
    """
    try:
        return _convert(value, kind, "")
    except _Mismatch as error:
        raise UserError(f"{where}: {error}") from None


def fitting(value: Any, kind: type[T]) -> T | None:
    """Return a value as `convert` does, or None if it is something else."""
    try:
        return convert(value, kind, "")
    except UserError:
        return None


def _convert(value: Any, kind: Any, field: str) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if origin is Annotated:
        return _convert(value, arguments[0], field)
    if origin in (Union, UnionType):
        return _union(value, arguments, field)
    if origin is Literal:
        _expect(any(value is x or value == x for x in arguments), value, kind, field)
        return value
    if origin in (list, tuple, Sequence):
        return _items(value, kind, field)
    if origin in (dict, Mapping):
        _expect(isinstance(value, dict), value, kind, field)
        return {k: _convert(v, arguments[1], _join(field, k)) for k, v in value.items()}
    if is_typeddict(kind) or dataclasses.is_dataclass(kind):
        return _fields(value, kind, field)
    if kind is float and type(value) in (int, float):
        _expect(abs(value) <= sys.float_info.max, value, kind, field)
    else:
        large = kind is int and type(value) is int and abs(value) > MAX_INTEGER
        _expect(type(value) is kind and not large, value, kind, field)
    return value


def _union(value: Any, kinds: Sequence[Any], field: str) -> Any:
    within = None
    for kind in kinds:
        try:
            return _convert(value, kind, field)
        except _Mismatch as error:
            if isinstance(value, _container(kind)):
                within = within or error
    # What is wrong within a list or an object says more than all that it may be.
    raise within or _mismatch(value, Union[tuple(kinds)], field)  # noqa: UP007


def _container(kind: Any) -> tuple[type, ...]:
    if is_typeddict(kind) or dataclasses.is_dataclass(kind):
        return (dict,)
    origin = get_origin(kind)
    return (list,) if origin is tuple else (origin,) if origin in (dict, list) else ()


def _items(value: Any, kind: Any, field: str) -> Any:
    arguments = get_args(kind)
    _expect(isinstance(value, list), value, kind, field)
    of_one = get_origin(kind) is not tuple or arguments[-1] is ...
    kinds = [arguments[0]] * len(value) if of_one else list(arguments)
    if len(kinds) != len(value):
        expected, found = f"a list of {len(kinds)}", f"a list of {len(value)}"
        raise _Mismatch(field, f"expected {expected}, found {found}")
    # There may be a million names of classes.
    if set(kinds) != {str} or set(map(type, value)) != {str}:
        value = [
            _convert(item, kind, f"{field}[{i}]")
            for i, (item, kind) in enumerate(zip(value, kinds, strict=True))
        ]
    return tuple(value) if get_origin(kind) is tuple else value


def _fields(value: Any, kind: Any, field: str) -> Any:
    _expect(isinstance(value, dict), value, kind, field)
    kinds, required = _schema(kind)
    for name in sorted(required - value.keys()):
        raise _Mismatch(field, f"{name} is missing")
    found = {
        name: _convert(item, kinds[name], _join(field, name))
        for name, item in value.items()
        if name in kinds
    }
    if is_typeddict(kind):
        return {**value, **found}
    for name in value.keys() - kinds.keys():
        raise _Mismatch(
            _join(field, name),
            f"unknown to this version of jaxtrain; {hint(name, list(kinds))}",
        )
    try:
        return kind(**found)
    except UserError as error:  # A value out of range.
        raise _Mismatch(field, str(error)) from None


@functools.cache
def _schema(kind: Any) -> tuple[dict[str, Any], frozenset[str]]:
    """Return the type of each field, and the fields that must be there."""
    if is_typeddict(kind):
        return get_type_hints(kind), kind.__required_keys__
    missing = dataclasses.MISSING
    fields = [f for f in dataclasses.fields(kind) if f.init]
    required = (
        f.name for f in fields if f.default is missing and f.default_factory is missing
    )
    hints = get_type_hints(kind)
    return {f.name: hints[f.name] for f in fields}, frozenset(required)


def _expect(fits: bool, value: Any, kind: Any, field: str) -> None:
    if not fits:
        raise _mismatch(value, kind, field)


def _mismatch(value: Any, kind: Any, field: str) -> _Mismatch:
    return _Mismatch(field, f"expected {_expected(kind)}, found {_shown(value)}")


def _expected(kind: Any) -> str:
    if get_origin(kind) in (Union, UnionType):
        return " or ".join(_expected(member) for member in get_args(kind))
    if get_origin(kind) is Literal:
        return " or ".join(map(repr, get_args(kind)))
    return _WORDS.get(get_origin(kind) or kind, "an object")


def _shown(value: Any) -> str:
    if isinstance(value, list | dict):
        return f"{_WORDS[type(value)]} of {len(value)}"
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, int) and abs(value) >= 10**MAX_LETTERS:
        return "a very large number"
    text = repr(value)
    return text if len(text) <= MAX_LETTERS else f"{text[:MAX_LETTERS]}..."


def _join(field: str, name: str) -> str:
    return f"{field}.{name}" if field else name
