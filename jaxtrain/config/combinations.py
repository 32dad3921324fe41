"""Rules on config options that exclude or require each other.

Each section declares its rules in `COMBINATIONS`. `jaxtrain.config.root.COMBINATIONS`
lists all rules; `docs/combinations.md` is generated from the list.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from jaxtrain import own
from jaxtrain.config.base import Section, default_of, report


@dataclass(frozen=True)
class Feature:
    """Fields of a section. A feature is used if a field's value satisfies `counts`.

    Attributes:
      section: Path of the section, such as `data.augment`.
      names: Names of the fields.
      when: Description of the accepted values, such as `= adamw`, which follows the
        field name in messages; "" if `counts` is None.
      counts: Predicate of a field's value. None accepts all values but the default.
    """

    section: str
    names: tuple[str, ...]
    when: str = ""
    counts: Callable[[Any], bool] | None = None

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(f"{self.section}.{name}" for name in self.names)

    def named(self, quote: str = "") -> str:
        """Return the field paths, followed by `when` if it is not empty."""
        paths = " or ".join(f"{quote}{path}{quote}" for path in self.paths)
        return f"{paths} {self.when}".rstrip()

    def _section_in(self, part: Any, within: str) -> Any:
        """Return the feature's section; `part` is the enclosing section at `within`."""
        inner = self.section.removeprefix(within).removeprefix(".")
        return attrgetter(inner)(part) if inner else part

    def describe(self, part: Any, within: str, *, used: bool = True) -> str:
        """Return the used or the unused fields with their values, as text.

        Args:
          part: Entire config, or its section at path `within`.
          within: Path of that section; "" for an entire config.
          used: Whether to list the used fields; otherwise the unused ones.
        """
        section = self._section_in(part, within)
        return " and ".join(
            f"{self.section}.{name} = {_shown(getattr(section, name))}"
            for name in self.names
            if hasattr(section, name) and self._is_used(section, name) == used
        )

    def used(self, part: Any, within: str) -> tuple[str, ...]:
        """Return the paths of the fields that are used."""
        section = self._section_in(part, within)
        return tuple(
            f"{self.section}.{name}"
            for name in self.names
            if hasattr(section, name) and self._is_used(section, name)
        )

    def _is_used(self, section: Any, name: str) -> bool:
        value = getattr(section, name)
        if self.counts is not None:
            return self.counts(value)
        return value != default_of(section, name)


def _shown(value: Any) -> str:
    return repr(getattr(value, "name", value) if isinstance(value, Section) else value)


def option(section: str, *names: str) -> Feature:
    """Return a feature that is used if any of the fields differs from its default."""
    return Feature(section, names)


def choice(section: str, name: str, *values: str) -> Feature:
    """Return a feature that is used if a field has one of `values`."""
    when = f"= {' or '.join(values)}"
    return Feature(section, (name,), when, lambda found: found in values)


def own_part(section: str, name: str) -> Feature:
    """Return a feature that is used if the value of a field is custom code."""
    return Feature(section, (name,), "= custom code", own.is_own)


@dataclass(frozen=True)
class Incompatible:
    """Two features that cannot be used together.

    Attributes:
      first: Feature that the message names first.
      second: Feature that is incompatible with `first`.
      reason: Reason for the incompatibility, as a clause.
      instead: Advice to the user, as an imperative.
    """

    first: Feature
    second: Feature
    reason: str
    instead: str

    def refusal(self, part: Any, within: str) -> str | None:
        """Return the error message if a config or section violates the rule."""
        first, second = (f.describe(part, within) for f in (self.first, self.second))
        if not (first and second):
            return None
        return f"{first} with {second}: {self.reason}; {self.instead}"


@dataclass(frozen=True)
class Needs:
    """A feature that has no effect unless another feature is used.

    Attributes:
      first: Feature that has no effect without `second`.
      second: Feature that `first` requires.
      instead: Advice to the user, as an imperative. Defaults to advice to set
        `second`, or to leave `first` out.
    """

    first: Feature
    second: Feature
    instead: str = ""

    def refusal(self, part: Any, within: str) -> str | None:
        """Return the error message if a config or section violates the rule."""
        first = self.first.describe(part, within)
        if not first or self.second.describe(part, within):
            return None
        second = self.second.named()
        without = f"without {second}"
        if self.second.when:
            found = self.second.describe(part, within, used=False)
            without = f"with {found}, only with {second}"
        needless = " and ".join(self.first.used(part, within))
        fix = self.instead or f"set {second} too, or leave {needless} out"
        return f"{first} has no effect {without}: {fix}"


Combination = Incompatible | Needs


def check(part: Any, declared: Sequence[Combination], within: str = "") -> None:
    """Report every violated rule in a config or in one of its sections.

    Args:
      part: Entire config, or its section at path `within`.
      declared: Rules to check; rules with fields outside the section are skipped.
      within: Path of that section; "" for an entire config.
    """
    for row in declared:
        sections = row.first.section, row.second.section
        if all(section.startswith(within) for section in sections):
            message = row.refusal(part, within)
            if message is not None:
                report(message, *row.first.used(part, within))
