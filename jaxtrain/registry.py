"""Registries (tables): lookup of a row by the name in a config field."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from jaxtrain import own
from jaxtrain.errors import UserError, nearest

T = TypeVar("T")
# Hint in a message, before the list of all names, which may be long.
NEAREST = " (perhaps you meant {})"
# Maximum number of names to list in a message.
NUM_OWNERS = 8


class Row(NamedTuple):
    """Row of a registry (table).

    Attributes:
      build: Function or class to call.
      Options: Config class of the keyword arguments of `build`, a
        `jaxtrain.config.part.Part`.
    """

    build: Callable[..., Any]
    Options: type | None = None


def call_row(table: Mapping[str, Any], part: Any, field: str, *args: Any) -> Any:
    """Call the table row named `part.name`, with `args` and the options in `part`.

    Args:
      table: Rows by name, each a `Row` or a function.
      part: Config section, a `jaxtrain.config.part.Part`.
      field: Path of `part.name` in the config, such as optimizer.name.
      *args: Positional arguments of the row.

    Raises:
      UserError: The name is unknown, or custom code does not accept the arguments.
    """
    row, options = find_row(table, field, part.name), part.arguments()
    build = row.build if isinstance(row, Row) else row
    if not isinstance(row, Row) or row.Options is None:
        check_call(field, part.name, build, *args, **options)
    return build(*args, **options)


def find_row(table: Mapping[str, T], field: str, name: str) -> T:
    """Return the table row, or the custom code, that `name` refers to.

    Raises:
      UserError: The name is neither in the table nor a reference to custom code.
    """
    if own.is_own(name):
        return own.load(field, name)
    if name not in table:
        # Messages name the field without `.name`, like the messages of `check_names`.
        raise UserError(unknown(table, field.removesuffix(".name"), name))
    return table[name]


def unknown(table: Iterable[str], field: str, name: str) -> str:
    """Return the error message for a name that is not in a table."""
    return (
        f"{field} = {name!r}{nearest(name, table, NEAREST, num=3)}: expected "
        f"{', '.join(table)}, or {own.FORMS}"
    )


def call_own(field: str, name: str, part: Any, *args: Any, **options: Any) -> Any:
    """Call a table row or custom code; first check the signature of custom code."""
    if own.is_own(name):
        check_call(field, name, part, *args, **options)
    return part(*args, **options)


def check_call(field: str, name: str, part: Any, *args: Any, **options: Any) -> None:
    """Raise UserError if the custom code `part` does not accept the arguments."""
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
