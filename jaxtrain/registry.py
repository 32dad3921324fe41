"""Lookup of table rows by config fields, and validation of their options."""

import inspect
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from jaxtrain import own
from jaxtrain.errors import UserError, first_of, nearest
from jaxtrain.plugin import Table

T = TypeVar("T")
# Precedes the list of known names, which may be long.
NEAREST = " (perhaps you meant {})"
# Maximum number of names in a message.
NUM_OWNERS = 8


class Row(NamedTuple):
    """A row of a table: a callable, and the config options that it accepts."""

    build: Callable[..., Any]
    takes: tuple[str, ...] = ()


def call_row(table: Table[Any], config: Any, field: str, *args: Any) -> Any:
    """Call the row that a field names, with `args` and the options that are set.

    Custom code, and a plug-in's row that is not a `Row`, is called with the `options`
    of the section instead of its fields.

    Args:
      table: Table of rows; its core rows define the names of the options.
      config: Section of the config.
      field: Path of the field in the config, such as optimizer.name.
      *args: Positional arguments of all rows.

    Raises:
      UserError: The name is unknown, or an option is set that only other rows accept.
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
    """Return the row of a name, or the custom code that the name refers to.

    Raises:
      UserError: The name is neither in the table nor a reference to custom code.
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
      options: Names of the options of all rows of a table.
      name: Name of the selected row.
      takes: Options that the selected row accepts.
      others: Function that returns the options of each row by name, for messages.

    Raises:
      UserError: An option is set that the selected row does not accept.
    """
    values = {option: getattr(config, option) for option in options}
    values = {option: value for option, value in values.items() if value is not None}
    for option, value in values.items():
        if option not in takes:
            owners = [part for part, known in others().items() if option in known]
            raise UserError(
                f"{section}.{option} = {value!r} has no effect on {name}, "
                f"which accepts: {', '.join(takes) or 'no options'}; {option} is an "
                f"option of {first_of(owners, NUM_OWNERS)}"
            )
    return values


def check_no_options(section: str, name: str, options: Mapping[str, Any]) -> None:
    """Raise UserError if `options` are set for a row that is not custom code."""
    if options:
        raise UserError(
            f"{section}.options = {dict(options)!r} is for custom code; {name} "
            f"has fields of the section {section}"
        )


def call_own(field: str, name: str, part: Any, *args: Any, **options: Any) -> Any:
    """Call a row, or custom code after a check of its signature."""
    if own.is_own(name):
        check_call(field, name, part, *args, **options)
    return part(*args, **options)


def check_call(field: str, name: str, part: Any, *args: Any, **options: Any) -> None:
    """Raise UserError if `part`, custom code, cannot be called with the arguments."""
    if not callable(part):
        raise UserError(
            f"{field} = {name!r}: expected a class or a function, got {part!r}"
        )
    try:
        inspect.signature(part).bind(*args, **options)
    except TypeError as error:
        raise UserError(
            f"{field} = {name!r} does not accept its arguments ({error}); see "
            "docs/extending.md"
        ) from None
