"""Parts of a config: sections whose `name` field selects a class of options."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar, get_args, get_type_hints

from jaxtrain import own
from jaxtrain.config.base import Options, Section, default_of, is_of_type
from jaxtrain.config.metadata import field, nested
from jaxtrain.errors import nearest
from jaxtrain.plugin import resolve
from jaxtrain.problems import Problem, ProblemsError

Typed = TypeVar("Typed", bound=Section)
NO_OPTIONS: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class Part(Section):
    """Name of an implementation, with its options, which subclasses declare as fields.

    A subclass with the argument `base=True`, such as `OptimizerConfig`, declares fields
    that all parts of its table have; they are not options.

    Attributes:
      name: Name in the `PartTable`. If several names select a class, the class
        declares a Literal of the names.
    """

    # Expected value, for messages; not a dataclass field, as it has no annotation.
    shown = "an instance, such as RegressionConfig(), or a name"
    shared_fields = frozenset({"name"})
    name: str = field("", init=False)

    def __init_subclass__(cls, *, base: bool = False, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if base:
            cls.shared_fields = Part.shared_fields | cls.__annotations__.keys()

    def __post_init__(self) -> None:
        convert_parts(self)
        super().__post_init__()

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Return the names in the table that select this class."""
        name = cls.__dataclass_fields__["name"]
        return get_args(get_type_hints(cls)["name"]) if name.init else (name.default,)

    @classmethod
    def option_names(cls) -> tuple[str, ...]:
        """Return the names of the fields that are options."""
        fields = cls.__dataclass_fields__
        return tuple(name for name in fields if name not in cls.shared_fields)

    def arguments(self) -> dict[str, Any]:
        """Return the options by name, as keyword arguments of the implementation."""
        return {name: getattr(self, name) for name in self.option_names()}

    def shared(self) -> dict[str, Any]:
        """Return the fields that all parts of the table have, except `name`."""
        return {n: getattr(self, n) for n in self.shared_fields if n != "name"}

    def changed(self) -> dict[str, Any]:
        """Return the options that differ from their defaults, by name."""
        options = self.arguments().items()
        return {n: x for n, x in options if x != default_of(self, n)}

    def as_text(self) -> dict[str, bool | int | float | str]:
        """Return the result of `changed`, with tuples as text such as 1,5,1."""
        return {
            name: ",".join(map(repr, x)) if isinstance(x, tuple) else x
            for name, x in self.changed().items()
        }

    def updated(self, options: Mapping[str, Any]) -> Any:
        """Return a copy with some options replaced; text such as 1,5,1 becomes a tuple.

        Raises:
          ProblemsError: An option does not exist, or a value is invalid.
        """
        return typed_options(self, options, self.name, "")


@dataclass(frozen=True, kw_only=True)
class CustomConfig(Part):
    """A part without declared options, such as a user-defined task.

    Attributes:
      name: Name, or import path: path/to/file.py:name or package.module:name.
      options: Keyword arguments of the user-defined class or function.
    """

    name: str = field(
        help="Name, or import path of user-defined code: path/to/file.py:name or "
        "package.module:name."
    )
    options: Options = field(
        default_factory=dict, help="Keyword arguments for the class or function."
    )

    def arguments(self) -> dict[str, Any]:
        return dict(self.options)

    def changed(self) -> dict[str, Any]:
        return dict(self.options)

    def updated(self, options: Mapping[str, Any]) -> Any:
        return replace(self, options={**self.options, **options})


class PartTable(NamedTuple):
    """Table of the parts that a field of the config may select.

    Attributes:
      rows: Import path, "module:NAME", of a mapping from names to implementations
        (rows). The attribute `Options` of a row is the config class of its part.
      custom: Config class of custom code, and of rows without `Options`.
    """

    rows: str
    custom: type[CustomConfig]

    def resolve(self) -> Mapping[str, Any]:
        """Import and return the mapping from names to implementations."""
        return resolve(self.rows)


TASKS = PartTable("jaxtrain.tasks:TASKS", CustomConfig)
METHODS = PartTable("jaxtrain.training.methods:METHODS", CustomConfig)


def part_tables(section: Any) -> dict[str, PartTable]:
    """Return the table of each field that holds a part, by dotted path.

    Args:
      section: Section class (with the default parts), or an instance.
    """
    found = dict[str, PartTable]()
    for field_, inner in nested(section):
        if "table" in field_.metadata:
            found[field_.name] = field_.metadata["table"]
        if inner is not None:
            within = part_tables(inner).items()
            found |= {f"{field_.name}.{path}": table for path, table in within}
    return found


def convert_parts(section: Section) -> None:
    """Convert names and custom classes in the fields of a new section to parts."""
    for field_ in dataclasses.fields(section):  # type: ignore[arg-type]
        if "table" in field_.metadata:
            part = as_part(getattr(section, field_.name), field_.metadata["table"])
            object.__setattr__(section, field_.name, part)


def part_class(table: PartTable, name: str) -> type[Part]:
    """Return the config class of a part, after importing the implementation.

    Args:
      table: Table of the part.
      name: Name in the table, or import path of user-defined code.

    Returns:
      `Options` of the row; `table.custom` for custom code, for unknown names, and for
      rows whose `Options` are missing or do not have this name.
    """
    rows = table.resolve()
    kind = getattr(rows[name], "Options", None) if name in rows else None
    # A subclass with another name may inherit the options of its base class.
    if isinstance(kind, type) and issubclass(kind, Part) and name in kind.names():
        return kind
    return table.custom


def part_classes(table: PartTable) -> dict[str, type[Part]]:
    """Return the config class of each part of a table by name."""
    return {name: part_class(table, name) for name in table.resolve()}


def owners_of(table: PartTable, option: str) -> list[str]:
    """Return the names of the table's parts that have an option."""
    kinds = part_classes(table).items()
    return [name for name, kind in kinds if option in kind.option_names()]


def reset_options(kind: Any) -> None:
    """Set `Options` of a class to None if it defines `__init__`, but not `Options`.

    Inherited options would not match the arguments of `__init__`.

    Args:
      kind: New subclass of a task or method.
    """
    # A mixin may define `__init__`.
    made = (vars(base) for base in kind.__mro__)
    first = next((x for x in made if {"__init__", "Options"} & x.keys()), {})
    if "Options" not in first:
        kind.Options = None


def make_part(
    table: PartTable, name: str, options: Mapping[str, Any] = NO_OPTIONS
) -> Any:
    """Create a part by name.

    Args:
      table: Table of the part.
      name: Name in the table, or import path of user-defined code.
      options: Options by name; text such as 1,5,1 becomes a tuple.

    Raises:
      ProblemsError: An option does not exist, or a value is invalid.
    """
    kind: Any = part_class(table, name)
    part = kind(name=name) if kind.__dataclass_fields__["name"].init else kind()
    return part.updated(options) if options else part


def as_part(value: Any, table: PartTable) -> Any:
    """Convert a name or a custom class in a recipe to a part.

    Args:
      value: Part, name in the table, or custom class. Other values are returned
        unchanged, and the type check of the config rejects them.
      table: Table of the part.
    """
    is_part = isinstance(value, type) and issubclass(value, Part)
    if isinstance(value, str) or (callable(value) and not is_part):
        named: Any = value  # A class is stored as its import path.
        value = table.custom(name=named)
    if not isinstance(value, CustomConfig) or own.is_own(value.name):
        return value
    if issubclass(part_class(table, value.name), CustomConfig):
        return value
    part = make_part(table, value.name, value.options)
    return replace(part, **value.shared())


def typed_options(
    kind: type[Typed] | Typed, given: Mapping[str, Any], name: str, field: str = "task"
) -> Typed:
    """Return the typed options of a part; text such as 1,5,1 becomes a tuple.

    Args:
      kind: Dataclass of the options, or an instance with other defaults.
      given: Options by name.
      name: Name of the part, for messages.
      field: Path of the part in the config, for messages.

    Raises:
      ProblemsError: An option does not exist, or a value is invalid.
    """
    of = kind if isinstance(kind, type) else type(kind)
    hints = get_type_hints(of)
    if issubclass(of, Part):
        hints = {option: hints[option] for option in of.option_names()}
    texts = [
        f"{name} takes {', '.join(hints) or 'no options'}, not {option!r}"
        f"{nearest(option, hints)}"
        for option in given
        if option not in hints
    ]
    taken = {n: _as_tuple(v, hints[n]) for n, v in given.items() if n in hints}
    try:
        made: Any = kind
        options: Typed = made(**taken) if made is of else replace(made, **taken)
    except ProblemsError as error:
        texts += [problem.text for problem in error.problems]
    else:
        if not texts:
            return options
    before = f"{field}: " if field else ""
    raise ProblemsError(Problem(before + text, (field,)) for text in texts)


def _as_tuple(value: Any, hint: Any) -> Any:
    """If a field is a tuple, convert a number, or text such as 1,5,1, to a tuple."""
    if isinstance(value, str | int | float) and not is_of_type(value, hint):
        for kind in (float, int):
            try:
                numbers = tuple(map(kind, str(value).split(",")))
            except ValueError:
                continue
            if is_of_type(numbers, hint):
                return numbers
    return value
