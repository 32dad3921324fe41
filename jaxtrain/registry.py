"""Tables of names: find the row that the config names, with the options it sets."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from jaxtrain.errors import UserError, nearest

T = TypeVar("T")


class Row(NamedTuple):
    """A row of a table: what to call, and the config's options that it takes."""

    build: Callable[..., Any]
    takes: tuple[str, ...] = ()


def call_row(table: Mapping[str, Row], config: Any, field: str, *args: Any) -> Any:
    """Call the row that a field names with `args` and the options that are set.

    Args:
      table: the rows; what any of them takes are options of all.
      config: the section of the config.
      field: its path in the whole config, such as optimizer.name.
      *args: what every row takes.

    Raises:
      UserError: the name is not in the table, or an option is set that other rows take
        and this one does not.
    """
    section, _, attribute = field.partition(".")
    name = getattr(config, attribute)
    build, takes = find_row(table, field, name)
    options = sorted({option for row in table.values() for option in row.takes})
    return build(*args, **given_options(config, section, options, name, takes))


def find_row(table: Mapping[str, T], field: str, name: str) -> T:
    """Return the row of a name.

    Raises:
      UserError: the name that `field` has is not in the table.
    """
    if name not in table:
        known = ", ".join(table)
        raise UserError(f"{field} = {name!r}: expected {known}{nearest(name, table)}")
    return table[name]


def given_options(
    config: Any, section: str, options: Iterable[str], name: str, takes: Sequence[str]
) -> dict[str, Any]:
    """Return those of the options of a section of the config that are not None.

    Raises:
      UserError: one is set that `name` does not take.
    """
    values = {option: getattr(config, option) for option in options}
    values = {option: value for option, value in values.items() if value is not None}
    for option, value in values.items():
        if option not in takes:
            raise UserError(
                f"{section}.{option} = {value!r} has no effect on {name}, "
                f"which takes: {', '.join(takes) or 'no options'}"
            )
    return values
