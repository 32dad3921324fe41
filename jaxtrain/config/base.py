"""Sections of the config schema: checked, frozen dataclasses."""

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from dataclasses import MISSING
from types import NoneType, UnionType
from typing import (
    Any,
    Literal,
    NamedTuple,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import tyro

from jaxtrain import own
from jaxtrain.errors import UserError
from jaxtrain.plugin import resolve
from jaxtrain.problems import Problem, ProblemsError

# Options by name. The command line parses a value as the first type that accepts it.
Options = dict[str, bool | int | float | str]


# JAX uses 32-bit integers and floats by default; seeds are unsigned.
MAX_COUNT, MAX_SEED, MAX_FLOAT = 2**31 - 1, 2**32 - 1, 3.4e38
# One year. System clocks and timers overflow beyond a few hundred years.
MAX_SECONDS = 365 * 24 * 3600

# For the section that is being checked: its problems, the prefix of its paths, and the
# names of fields with a value of the wrong type or range.
_checked: ContextVar[tuple[list[Problem], str, set[str]]] = ContextVar("checked")
# Whether new sections skip validation; `problems_of` validates them later.
_unchecked: ContextVar[bool] = ContextVar("unchecked", default=False)


@contextlib.contextmanager
def unchecked() -> Iterator[None]:
    """Context manager: construct sections without validation; see `problems_of`."""
    token = _unchecked.set(True)
    try:
        yield
    finally:
        _unchecked.reset(token)


def report(text: str, *fields: str) -> None:
    """Report a problem; to be called in `validate` of a section.

    Args:
      text: Message that names the value and the fix.
      *fields: Fields with an invalid value: paths, or names within the section.

    Raises:
      UserError: No section is being checked.
    """
    checked = _checked.get(None)
    if checked is None:
        raise UserError(text)
    found, before, refused = checked
    # A section without a fixed path, such as task options, reports bare field names.
    fields = tuple(field if "." in field else before + field for field in fields)
    problem = Problem(text, fields)
    # Skip problems that only follow from a value of the wrong type or range.
    names = {field.rpartition(".")[2] for field in fields}
    if problem not in found and refused.isdisjoint(names):
        found.append(problem)


def is_of_type(value: Any, hint: Any) -> bool:
    """Whether a value has the type of a field. Booleans do not count as numbers."""
    if get_origin(hint) in (Union, UnionType):
        return any(is_of_type(value, member) for member in get_args(hint))
    if get_origin(hint) is Literal:
        return isinstance(value, str) and value in get_args(hint)
    if get_origin(hint) is dict:
        key, of_values = get_args(hint)
        return isinstance(value, dict) and all(
            is_of_type(k, key) and is_of_type(v, of_values) for k, v in value.items()
        )
    if get_origin(hint) is tuple:
        item = get_args(hint)[0]
        return isinstance(value, tuple) and all(is_of_type(v, item) for v in value)
    if isinstance(value, bool):
        return hint is bool
    return isinstance(value, (int, float) if hint is float else hint)


def _numbers(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, tuple) else (value,)


def _show_value(value: Any) -> str:
    try:
        return repr(value)
    except ValueError:
        return "an integer with too many digits to print"


def shown_type(hint: Any) -> str:
    """Return the type of a field as text for messages and help."""
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(map(str, get_args(hint)))
    if get_origin(hint) in (Union, UnionType):
        return " or ".join(map(shown_type, get_args(hint)))
    if hint is NoneType:
        return "None"
    if isinstance(hint, type):
        return getattr(hint, "shown", hint.__name__)
    return str(hint)


def row_of(table: str, *, exact: bool = True) -> Any:
    """Return the annotation of a field whose values are keys of a table.

    Args:
      table: MODULE:NAME of a mapping. The module must not import JAX, because the
        import would delay the help by a second.
      exact: Whether every valid value is a key of the table; see `check_names`.
    """

    return tyro.conf.arg(help_behavior_hint=RowHint(table, exact))


class RowHint(NamedTuple):
    """End of a field's help text: the keys of its table, and the default."""

    table: str
    exact: bool

    def __call__(self, default: str) -> str:
        return f"(one of: {', '.join(resolve(self.table))}; default: {default})"


def default_of(section: Any, name: str) -> Any:
    """Return the default of a field of a section."""
    field = type(section).__dataclass_fields__[name]
    make = field.default_factory
    return field.default if make is MISSING else make()


class Section:
    """Base class of config sections: checks types and ranges, and calls `validate`."""

    def __post_init__(self) -> None:
        for name, hint in get_type_hints(type(self)).items():
            value = getattr(self, name)
            if callable(value) and str in (hint, *get_args(hint)):
                # A recipe may set a function; the field then stores its import path.
                object.__setattr__(self, name, own.reference(value))
        if not _unchecked.get() and (found := self.problems()):
            raise ProblemsError(found)

    def problems(self, path: str = "") -> list[Problem]:
        """Check the values, except in nested sections, and return all problems.

        Args:
          path: Path of the section in its config, for messages.
        """
        found: list[Problem] = []
        token = _checked.set((found, f"{path}." if path else "", set()))
        try:
            self._check_types()
            self.validate()
        except UserError as error:
            found.append(Problem(str(error)))
        except Exception:
            # Invalid values may make `validate` raise any error.
            if not found:
                raise
        finally:
            _checked.reset(token)
        return found

    def _check_types(self) -> None:
        for name, hint in get_type_hints(type(self)).items():
            value = getattr(self, name)
            self._check(name, is_of_type(value, hint), shown_type(hint))
            named = not isinstance(value, dict) or "" not in value
            self._check(name, named, "options with nonempty names")
            largest = MAX_SEED if name == "seed" else MAX_COUNT
            for number in _numbers(value):
                if isinstance(number, int):
                    expected = f"a number of at most {largest}"
                    self._check(name, number <= largest, expected)
                    expected = f"a number of at least {-MAX_COUNT}"
                    self._check(name, number >= -MAX_COUNT, expected)
                elif isinstance(number, float):
                    expected = f"a finite number of at most {MAX_FLOAT:g}"
                    self._check(name, abs(number) <= MAX_FLOAT, expected)

    @classmethod
    def combinations(cls) -> tuple[Any, ...]:
        """Return the rules of a plug-in's section: `Incompatible` and `Needs`."""
        return ()

    def validate(self) -> None:
        """Check ranges of values and combinations; call `report` for each problem."""

    def _check(self, name: str, ok: bool, expected: str) -> None:
        if not ok:
            _, before, refused = _checked.get(([], "", set()))
            path, value = before + name, _show_value(getattr(self, name))
            report(f"{path} = {value}: expected {expected}", path)
            refused.add(name)

    def _all(
        self, names: Iterable[str], good: Callable[[Any], bool], expected: str
    ) -> None:
        for name in names:
            value = getattr(self, name)
            self._check(name, value is None or good(value), expected)

    def _positive(self, *names: str) -> None:
        self._all(names, lambda value: value > 0, "a value above 0")

    def _not_negative(self, *names: str) -> None:
        self._all(names, lambda value: value >= 0, "0 or more")

    def _fraction(self, *names: str) -> None:
        self._all(names, lambda value: 0 <= value < 1, "0 <= value < 1")

    def _share(self, *names: str) -> None:
        self._all(names, lambda value: 0 < value <= 1, "0 < value <= 1")

    def _digest(self, *names: str) -> None:
        self._all(
            names,
            lambda digest: re.fullmatch("[0-9a-f]{8,64}", digest) is not None,
            "8 to 64 hex digits of a SHA-256 digest, as printed by sha256sum",
        )

    def _within(self, least: float, most: float, *names: str) -> None:
        self._all(names, lambda value: least <= value <= most, f"{least} to {most}")

    def _seconds(self, *names: str) -> None:
        self._positive(*names)
        expected = f"at most {MAX_SECONDS} seconds (one year)"
        self._all(names, lambda value: value <= MAX_SECONDS, expected)
