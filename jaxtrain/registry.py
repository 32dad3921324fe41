"""Lookup of parts by config fields, and validation of their options."""

import inspect
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from jaxtrain import own
from jaxtrain.errors import UserError, first_of, nearest
from jaxtrain.plugin import Table

T = TypeVar("T")
# Precedes the list of known names, which may be long.
NEAREST = " (perhaps you meant {})"
# Maximum number of parts in a message.
NUM_OWNERS = 8


class Row(NamedTuple):
    """A row of a table: a callable, and the config's options that it takes."""

    build: Callable[..., Any]
    takes: tuple[str, ...] = ()


def call_row(table: Table[Any], config: Any, field: str, *args: Any) -> Any:
    """Call the row that a field names, with `args` and the options that are set.

    A custom part, or a plug-in's row that is not a `Row`, takes the `options` of the
    section instead of its fields.

    Args:
      table: Table of rows; the options are those that its core rows take.
      config: Section of the config.
      field: Path of the field in the config, such as optimizer.name.
      *args: Positional arguments of all rows.

    Raises:
      UserError: The name is unknown, or an option is set that only other rows take.
    """
    section, _, attribute = field.partition(".")
    name = getattr(config, attribute)
    options = sorted({option for row in table.core_rows() for option in row.takes})
    part: Any = find_row(table, field, name)
    is_row = isinstance(part, Row)
    takes = part.takes if is_row else ()
    rows = dict(zip(table.core, table.core_rows(), strict=True))
    others = {name: row.takes for name, row in rows.items()}
    given = given_options(config, section, options, name, takes, lambda: others)
    own_options = getattr(config, "options", {}) if attribute == "name" else {}
    if is_row:
        check_no_options(section, name, own_options)
        return part.build(*args, **given)
    check_call(field, name, part, *args, **own_options)
    return part(*args, **own_options)


def find_row(table: Mapping[str, T], field: str, name: str) -> T:
    """Return the row of a name, or a custom part.

    Raises:
      UserError: The name is neither in the table nor refers to a custom part.
    """
    if own.is_own(name):
        return own.load(field, name)
    if name not in table:
        raise UserError(unknown(table, field, name))
    return table[name]


def unknown(table: Iterable[str], field: str, name: str) -> str:
    """Return the message about a name that is not in a table."""
    return (
        f"{field} = {name!r}{nearest(name, table, NEAREST, num=3)}: expected "
        f"{', '.join(table)}, or {own.FORMS}"
    )


def given_options(
    config: Any,
    section: str,
    options: Iterable[str],
    name: str,
    takes: Sequence[str],
    others: Callable[[], Mapping[str, Container[str]]],
) -> dict[str, Any]:
    """Return the options of a config section that are not None.

    Args:
      config: Section of the config.
      section: Name of that section.
      options: Names of the options of all parts.
      name: Name of the part.
      takes: Options that the part takes.
      others: Function that returns the options of other parts by name, for messages.

    Raises:
      UserError: An option is set that the part does not take.
    """
    values = {option: getattr(config, option) for option in options}
    values = {option: value for option, value in values.items() if value is not None}
    for option, value in values.items():
        if option not in takes:
            owners = [part for part, known in others().items() if option in known]
            raise UserError(
                f"{section}.{option} = {value!r} has no effect on {name}, "
                f"which takes: {', '.join(takes) or 'no options'}; {option} is an "
                f"option of {first_of(owners, NUM_OWNERS)}"
            )
    return values


def check_no_options(section: str, name: str, options: Mapping[str, Any]) -> None:
    """Raise UserError if `options` are set for a part that is not custom."""
    if options:
        raise UserError(
            f"{section}.options = {dict(options)!r} is for custom parts; {name} "
            f"has fields of the section {section}"
        )


def call_own(field: str, name: str, part: Any, *args: Any, **options: Any) -> Any:
    """Call a part; check the arguments of a custom one first."""
    if own.is_own(name):
        check_call(field, name, part, *args, **options)
    return part(*args, **options)


def check_call(field: str, name: str, part: Any, *args: Any, **options: Any) -> None:
    """Raise UserError if a custom part cannot be called with these arguments."""
    if not callable(part):
        raise UserError(f"{field} = {name!r} is not a class or function, but {part!r}")
    try:
        inspect.signature(part).bind(*args, **options)
    except TypeError as error:
        raise UserError(
            f"{field} = {name!r} does not accept its arguments ({error}); see "
            "docs/extending.md"
        ) from None
