"""Parts of a config: sections whose name selects a class with its options."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeVar, get_type_hints

from jaxtrain import own
from jaxtrain.config.base import Options, Section, default_of, is_of_type
from jaxtrain.config.metadata import field
from jaxtrain.errors import nearest
from jaxtrain.plugin import resolve
from jaxtrain.problems import Problem, ProblemsError

Typed = TypeVar("Typed", bound=Section)
# Tables of tasks and methods.
TASKS, METHODS = "jaxtrain.tasks:TASKS", "jaxtrain.training.methods:METHODS"
NO_OPTIONS: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class Part(Section):
    """A task or method with its options; subclasses declare the options as fields.

    Attributes:
      name: Name in the table of tasks or methods, set by the class.
    """

    # Expected value, for messages. Not annotated, so it is not a dataclass field.
    shown = "an instance, such as RegressionConfig(), or a name"
    name: str = field("", init=False)

    def arguments(self) -> dict[str, Any]:
        """Return the options by name, as keyword arguments of the task or method."""
        return {n: x for n, x in vars(self).items() if n != "name"}

    def changed(self) -> dict[str, Any]:
        """Return the options that differ from their defaults, by name."""
        options = self.arguments().items()
        return {n: x for n, x in options if x != default_of(self, n)}

    def as_text(self) -> dict[str, bool | int | float | str]:
        """Return the changed options, with tuples as text such as 1,5,1."""
        return {
            name: ",".join(map(repr, x)) if isinstance(x, tuple) else x
            for name, x in self.changed().items()
        }

    def updated(self, options: Mapping[str, Any]) -> "Part":
        """Return a copy with some options replaced; text such as 1,5,1 becomes a tuple.

        Raises:
          ProblemsError: An option does not exist, or a value is invalid.
        """
        return typed_options(type(self), {**self.changed(), **options}, self.name, "")


@dataclass(frozen=True, kw_only=True)
class CustomConfig(Part):
    """A task or method without declared options, such as user-defined code.

    Attributes:
      name: Name, or import path: path/to/file.py:name or package.module:name.
      options: Keyword arguments of the task or method class.
    """

    name: str = field(help="Name, or import path of user-defined code.")
    options: Options = field(
        default_factory=dict, help="Keyword arguments of the class, by name."
    )

    def arguments(self) -> dict[str, Any]:
        return dict(self.options)

    def changed(self) -> dict[str, Any]:
        return dict(self.options)

    def updated(self, options: Mapping[str, Any]) -> "CustomConfig":
        return CustomConfig(name=self.name, options={**self.options, **options})


def part_tables(section: Any) -> dict[str, str]:
    """Return the table, "module:NAME", of each field of a section that holds a part.

    Args:
      section: A section, or its class.
    """
    fields = dataclasses.fields(section)
    return {f.name: f.metadata["table"] for f in fields if "table" in f.metadata}


def part_class(table: str, name: str) -> type[Part]:
    """Return the config class of a part; imports its task or method.

    Args:
      table: "module:NAME" of the table.
      name: Name in the table, or import path of user-defined code.

    Returns:
      `Options` of the task or method; `CustomConfig` for user-defined code, unknown
      names, and tasks or methods that declare no options of this name.
    """
    rows: Mapping[str, Any] = resolve(table)
    kind = getattr(rows[name], "Options", None) if name in rows else None
    # A subclass with another name may inherit the options of its base class.
    if isinstance(kind, type) and issubclass(kind, Part) and kind.name == name:
        return kind
    return CustomConfig


def reset_options(kind: Any) -> None:
    """Set `Options` to None if a subclass overrides `__init__`, but not `Options`.

    Args:
      kind: Class of a task or method that was just created.
    """
    # The class that defines `__init__` may be a mixin.
    made = (vars(base) for base in kind.__mro__)
    first = next((x for x in made if {"__init__", "Options"} & x.keys()), {})
    if "Options" not in first:
        kind.Options = None


def make_part(table: str, name: str, options: Mapping[str, Any] = NO_OPTIONS) -> Part:
    """Create a part by name.

    Args:
      table: "module:NAME" of the table.
      name: Name in the table, or import path of user-defined code.
      options: Options by name; text such as 1,5,1 becomes a tuple.

    Raises:
      ProblemsError: An option does not exist, or a value is invalid.
    """
    kind = part_class(table, name)
    part = CustomConfig(name=name) if kind is CustomConfig else kind()
    return part.updated(options) if options else part


def as_part(value: Any, table: str) -> Any:
    """Return the part that a recipe names without its class.

    Args:
      value: Part, name in the table, or user-defined class. Other values are returned
        unchanged, for the type check of the config.
      table: "module:NAME" of the table.
    """
    is_part = isinstance(value, type) and issubclass(value, Part)
    if isinstance(value, str) or (callable(value) and not is_part):
        named: Any = value  # A class is stored as its import path.
        value = CustomConfig(name=named)
    if not isinstance(value, CustomConfig) or own.is_own(value.name):
        return value
    if part_class(table, value.name) is CustomConfig:
        return value
    return make_part(table, value.name, value.options)


def typed_options(
    kind: type[Typed], given: Mapping[str, Any], name: str, field: str = "task"
) -> Typed:
    """Return options as an instance of their dataclass; `1,5,1` becomes a tuple.

    Args:
      kind: Dataclass of the options.
      given: Options by name.
      name: Name of the part, for messages.
      field: Path of the part in the config, for messages.

    Raises:
      ProblemsError: An option does not exist, or a value is invalid.
    """
    hints = get_type_hints(kind)
    hints.pop("name", None)
    texts = [
        f"{name} takes {', '.join(hints) or 'no options'}, not {option!r}"
        f"{nearest(option, hints)}"
        for option in given
        if option not in hints
    ]
    taken = {n: _numbers_of(v, hints[n]) for n, v in given.items() if n in hints}
    try:
        options = kind(**taken)
    except ProblemsError as error:
        texts += [problem.text for problem in error.problems]
    else:
        if not texts:
            return options
    before = f"{field}: " if field else ""
    raise ProblemsError(Problem(before + text, (field,)) for text in texts)


def _numbers_of(value: Any, hint: Any) -> Any:
    """Convert text or a single number to a tuple if the field holds a tuple."""
    if isinstance(value, str | int | float) and not is_of_type(value, hint):
        for kind in (float, int):
            try:
                numbers = tuple(map(kind, str(value).split(",")))
            except ValueError:
                continue
            if is_of_type(numbers, hint):
                return numbers
    return value
